"""Read and run tests of kat, the Kubernetes Admission Tester.

Beside a policy there is a folder `tests`; `POLICY.TEST.EXPECT.object.yaml` in it is an object, and
what must come of it when the policy is asked: `allow`, `deny`, `warn` or `audit`. Further files of
the same name hold what else there is to a request, and to the answer. A mutating policy's case has
the object as it must come out in `.gold.yaml`.

Imports the engine. Start with `suites`.
"""
