"""Read and run tests of kat, the Kubernetes Admission Tester.

Beside a policy there is a folder `tests`; `POLICY.TEST.EXPECT.object.yaml` in it is an object, and
the expected result of the policy: `allow`, `deny`, `warn` or `audit`. Further files of
the same name hold other parts of the request, and of the answer. A mutating policy's case has
the expected object in `.gold.yaml`.

Imports `engine`, `cel` and `patch`. Start with `suites`.
"""
