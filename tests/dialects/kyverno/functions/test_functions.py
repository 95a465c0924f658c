"""What Kyverno adds works for its policies, and asks the outside only what it is given."""

import base64
import gzip
import json
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.cel import Budget, CelCompileError, CelError, admission_environment, compile_expression
from policyd.dialects.kyverno.environments import kyverno_environment, kyverno_values
from policyd.engine.model.dialects import Volatile
from policyd.errors import PolicydError

DIGEST = "sha256:" + "a" * 64
NOW = 1_767_323_045_000_000_000  # 2026-01-02T03:04:05Z
VOLATILE = Volatile(now=lambda: NOW, random_below=lambda below: below - 1)


class Cluster:
    """A cluster of one ConfigMap, which says what it was asked."""

    def get(self, api_version, resource, namespace, name):
        if name == "missing":
            return None
        if name == "secret":
            raise PolicydError("permission denied")
        return {"data": {"asked": f"{api_version} {resource} {namespace}/{name}"}}

    def list(self, api_version, resource, namespace, labels):
        return {"items": [{"version": api_version, "labels": labels}]}

    def post(self, api_version, resource, namespace, body):
        return {"kind": resource, "namespace": namespace, **body}


class Web:
    def send(self, method, url, body, headers):
        return {"method": method, "url": url, "body": body, "headers": headers}

    def trusting(self, certificates):
        return Trusting(certificates)


class Trusting:
    def __init__(self, certificates):
        self.certificates = certificates

    def send(self, method, url, body, headers):
        return {"trusts": self.certificates}


class Entries:
    def get(self, name, projection, expression, charge):
        found = {"entry": name, "projection": projection}
        return found | ({"expression": expression} if expression else {})


class Registry:
    def metadata(self, image):
        return {"config": {"created": "2025-01-01T00:00:00Z"}, "image": image}


def run(source, *, values=None, mutation=False, **variables):
    environment = kyverno_environment(mutation=mutation, volatile=VOLATILE)
    program = compile_expression(source, environment)
    provided = kyverno_values(
        resources=Cluster(), http=Web(), global_context=Entries(), images=Registry()
    )
    return program.evaluate({**(provided if values is None else values), **variables}, Budget())


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        pytest.param("nginx", ["index.docker.io", "library/nginx", "latest", ""], id="name"),
        pytest.param("a/b:1", ["index.docker.io", "a/b", "1", ""], id="user"),
        pytest.param("docker.io/nginx", ["index.docker.io", "library/nginx", "latest", ""]),
        pytest.param("ghcr.io/a/b:v1", ["ghcr.io", "a/b", "v1", ""], id="registry"),
        pytest.param("host:5000/app", ["host:5000", "app", "latest", ""], id="port"),
        pytest.param("localhost/app:2", ["localhost", "app", "2", ""], id="localhost"),
        pytest.param(f"ghcr.io/ab@{DIGEST}", ["ghcr.io", "ab", "", DIGEST], id="digest"),
        pytest.param(f"ghcr.io/ab:1@{DIGEST}", ["ghcr.io", "ab", "1", DIGEST], id="both"),
    ],
)
@pytest.mark.parametrize("function", ["image", "parseImageReference"])
def test_references_of_images_are_taken_apart(function, reference, parts):
    read = f"{function}('{reference}')"

    assert run(f"[{', '.join(f'{read}.{p}()' for p in PARTS)}]") == parts
    assert run(f"{read}.containsDigest()") is bool(parts[-1])
    assert run(f"isImage('{reference}')") is True


PARTS = ("registry", "repository", "tag", "digest")


@pytest.mark.parametrize("wrong", ["", "A/B", "a@sha256:1", "ghcr.io/a b", "a:b c", "x"])
def test_invalid_images_are_refused(wrong):
    assert run(f"isImage('{wrong}')") is False
    with pytest.raises(CelError, match="could not parse reference"):
        run(f"image('{wrong}')")


@pytest.mark.parametrize(
    ("source", "value"),
    [
        pytest.param("hash.sha1('a').size()", 40, id="sha1"),
        pytest.param("sha256('') == hash.sha256('')", True, id="sha256"),
        pytest.param("md5('a')", "0cc175b9c0f1b6a831c399e269772661", id="md5"),
        pytest.param("""json.unmarshal('{"a": [1]}').a[0]""", 1, id="json"),
        pytest.param(
            "json.marshal({'b': dyn(1), 'a': dyn([true])})", '{"a":[true],"b":1}', id="to-json"
        ),
        pytest.param("json.marshal(duration('90s'))", '"90s"', id="duration-to-json"),
        pytest.param(r"yaml.parse('a: 1\n2: 2026-01-02')", {"a": 1, "2": "2026-01-02"}, id="yaml"),
        pytest.param("gzip.decompress(gzip.compress('abc'))", "abc", id="gzip"),
        pytest.param("string(time.now())", "2026-01-02T03:04:05Z", id="now"),
        pytest.param(
            "string(time.truncate(time.now(), duration('1h')))", "2026-01-02T03:00:00Z", id="hour"
        ),
        pytest.param("time.toCron(time.now())", "4 3 2 1 5", id="cron"),
        pytest.param("time.now() - duration('24h') < time.now()", True, id="time-of-day"),
        pytest.param("math.round(3.14159, 2)", 3.14, id="round"),
        pytest.param("math.round(-2.5)", -3.0, id="round-to-whole"),
        pytest.param("regex.replace('aXbX', 'X', '-')", "a-b-", id="replace"),
        pytest.param("regex.replace('aXbX', 'X', '-', 1)", "a-bX", id="replace-once"),
        pytest.param(r"regex.replace('k=v', '(\\w)=(\\w)', r'\2=\1\\')", "v=k\\", id="groups"),
        pytest.param("regex.extract('id-42', '-([0-9]+)').value()", "42", id="extract"),
        pytest.param("regex.extract('id', '[0-9]').hasValue()", False, id="extract-nothing"),
        pytest.param("regex.extractAll('a1b2', '[0-9]')", ["1", "2"], id="extract-all"),
        pytest.param("random('[ab]{3}-x|y')", "y", id="last-alternative"),
        pytest.param(r"random('(?:ab){2}\\d[^a-z]?')", "abab9~", id="random"),
        pytest.param("random.random().size()", 8, id="random-of-no-pattern"),
        pytest.param("'abc'.reverse()", "cba", id="newer-strings"),
        pytest.param("cel.bind(x, 2, x * x)", 4, id="bind"),
        pytest.param("base64.encode(b'a')", "YQ==", id="encoders"),
        pytest.param("[1].transformMap(i, v, v)", {0: 1}, id="two-variables"),
        pytest.param(
            "listObjToMap([{'n': 'a'}], [{'v': 1}], 'n', 'v') == {'a': 1}", True, id="to-map"
        ),
        pytest.param("images.containers", ["nginx"], id="images"),
        pytest.param("exceptions.allowedImages", [], id="exceptions"),
    ],
)
def test_functions_have_results(source, value):
    values = {**kyverno_values(), "images": {"containers": ["nginx"]}}

    assert run(source, values=values) == value


@pytest.mark.parametrize(
    ("user", "account"),
    [
        pytest.param("system:serviceaccount:ns:name", ("ns", "name"), id="account"),
        pytest.param("system:serviceaccount:broken", ("", ""), id="no-name"),
        pytest.param("anna", ("", ""), id="person"),
    ],
)
def test_service_accounts_are_read_from_their_user_names(user, account):
    source = "user.parseServiceAccount(request.userInfo.username)"
    request = {"userInfo": {"username": user}}

    found = run(source, request=request)

    assert (found["Namespace"], found["Name"]) == account
    with pytest.raises(CelCompileError, match="undefined field 'name'"):
        run(f"{source}.name", request=request)


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        pytest.param(
            "resource.Get('v1', 'configmaps', 'ns', 'c').data.asked", "v1 configmaps ns/c", id="get"
        ),
        pytest.param("resource.get('v1', 'configmaps', 'ns', 'missing') == null", True, id="null"),
        pytest.param(
            "resource.get(resource.toGVR('apps/v1', 'deployments'), 'n', object.name).data.asked",
            "apps/v1 deployments n/d",
            id="by-gvr",
        ),
        pytest.param("resource.toGVR('v1', 'Pod').Resource", "pods", id="kind"),
        pytest.param(
            "resource.ToGVR('networking.k8s.io/v1', 'Ingress').Resource", "ingresses", id="ingress"
        ),
        pytest.param("resource.ToGVR('v1', 'Endpoints').Resource", "endpoints", id="endpoints"),
        pytest.param("resource.ToGVR('x.io/v1', 'Policy').Resource", "policies", id="custom"),
        pytest.param(
            "resource.List('v1', 'pods', 'ns', {'a': 'b'}).items[0].labels.a", "b", id="list"
        ),
        pytest.param("resource.list('v1', 'pods', 'ns').items.size()", 1, id="list-all"),
        pytest.param("resource.Post('v1', 'reviews', {'x': dyn(1)}).x", 1, id="post"),
        pytest.param("http.Get('https://x').method", "GET", id="http-get"),
        pytest.param("http.post('https://x', {'a': 1}).body.a", 1, id="http-post"),
        pytest.param("http.Get('https://x', {'h': 'v'}).headers.h", "v", id="headers"),
        pytest.param("http.Client('pem').Get('https://x').trusts", "pem", id="client"),
        pytest.param("globalContext.Get('e', 'p').projection", "p", id="global-context"),
        pytest.param("globalContext.get('e').entry", "e", id="whole-entry"),
        pytest.param("image.GetMetadata('nginx').image", "nginx", id="metadata"),
        pytest.param(
            "timestamp(image.getMetadata(object.name).config.created) < time.now()", True, id="age"
        ),
        pytest.param("has(image.GetMetadata('nginx').config.Volumes)", False, id="absent-field"),
    ],
)
def test_the_outside_is_asked(source, answer):
    assert run(source, object={"name": "d"}) == answer


@pytest.mark.parametrize(
    ("source", "needs"),
    [
        pytest.param("resource.Get('v1', 'a', 'b', 'c')", "`resource` is not available here: it"),
        pytest.param("http.Get('https://x')", "needs permission to send requests"),
        pytest.param("globalContext.Get('e')", "needs GlobalContextEntries"),
        pytest.param("image.GetMetadata('nginx')", "needs a registry"),
    ],
)
def test_missing_external_data_is_refused_with_a_message(source, needs):
    with pytest.raises(CelError, match=needs):
        run(source, values=kyverno_values())


@pytest.mark.parametrize("source", ["time.now()", "random()"])
def test_without_clock_and_dice_nothing_is_made_up(source):
    program = compile_expression(source, kyverno_environment())

    with pytest.raises(CelError, match="is not available here"):
        program.evaluate({}, Budget())


def test_an_answer_that_failed_says_why():
    with pytest.raises(CelError, match="failed to get resource: permission denied"):
        run("resource.Get('v1', 'secrets', 'ns', 'secret')")


@pytest.mark.parametrize(
    "source",
    ["sha256('a')", "resource.Get('v1', 'a', 'b', 'c')", "image('nginx')", "time.now()"],
)
def test_other_policies_have_none_of_this(source):
    with pytest.raises(CelCompileError, match="undeclared reference"):
        compile_expression(source, admission_environment())


def test_mutations_are_written_in_their_types():
    made = run("Object{spec: Object.spec{replicas: 1}}", mutation=True)

    assert made == {"spec": {"replicas": 1}}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param("json.unmarshal('{')", "invalid JSON", id="json"),
        pytest.param("json.unmarshal(1)", "no such overload", id="json-of-a-number"),
        pytest.param("yaml.parse('a: [')", "invalid YAML", id="yaml"),
        pytest.param("yaml.parse('&a [*a]')", "contains itself", id="yaml-that-contains-itself"),
        pytest.param("yaml.parse('!!bool x')", "not `true` or `false`", id="yaml-of-a-wrong-tag"),
        pytest.param("gzip.decompress(b'abc')", "invalid gzip", id="gzip"),
        pytest.param("gzip.compress(1)", "no such overload", id="gzip-of-a-number"),
        pytest.param("regex.replace('a', 'a', r'\\1')", "names group 1", id="no-such-group"),
        pytest.param("regex.replace('a', 'a', r'\\x')", "is not a group", id="no-group"),
        pytest.param("regex.extract('ab', '(a)(b)')", "has 2 groups", id="two-groups"),
        pytest.param("random('a{9999}')", "makes more than", id="random-too-long"),
        pytest.param("random('[a')", "not closed", id="open-class"),
        pytest.param("random('(a')", "not closed", id="open-group"),
        pytest.param("random('a)')", "not opened", id="closed-group"),
        pytest.param("random('*')", "nothing to repeat", id="nothing-to-repeat"),
        pytest.param("random('(((a?){99}){99}){99}')", "more than 4096", id="random-bomb"),
        pytest.param(f"random('{'(' * 9_000}')", "nest too deep", id="random-too-deep"),
        pytest.param(f"json.unmarshal('{'[' * 9_000}')", "invalid JSON", id="json-too-deep"),
        pytest.param(f"yaml.parse('{'[' * 9_000}')", "invalid YAML", id="yaml-too-deep"),
        pytest.param("random('a{2,1}')", "end lies before", id="backwards"),
        pytest.param("random('a{x}')", "a repetition is", id="no-number"),
        pytest.param("x509.decode('none')", "no PEM certificate", id="no-certificate"),
        pytest.param(
            "x509.decode('-----BEGIN CERTIFICATE-----')", "invalid certificate", id="broken"
        ),
        pytest.param("listObjToMap([{}], [], 'a', 'b')", "cannot be paired", id="not-paired"),
        pytest.param("listObjToMap([{}], [{}], 'a', 'b')", "is not a string", id="no-key"),
    ],
)
def test_unreadable_data_is_reported(source, message):
    with pytest.raises(CelError, match=message):
        run(source)


@pytest.mark.parametrize("form", ["[{}]", "{{<<: [{}]}}"], ids=["aliases", "merge-keys"])
def test_a_yaml_bomb_is_not_unpacked(form):
    """Six levels, in 241 letters: each stands for eight times what the one before does."""
    levels = ["a: &a {k: v}"]
    for one, name in pairwise("abcdefg"):
        levels.append(f"{name}: &{name} {form.format(','.join([f'*{one}'] * 8))}")
    bomb = json.dumps("\n".join(levels))

    with pytest.raises(CelError, match="too many aliases"):
        run(f"yaml.parse({bomb})")


def test_a_gzip_bomb_is_not_unpacked():
    bomb = base64.b64encode(gzip.compress(b"0" * (2 << 20))).decode()

    with pytest.raises(CelError, match="larger than"):
        run(f"gzip.decompress(base64.decode('{bomb}'))")


@pytest.fixture(scope="module")
def rsa_key():
    return rsa.generate_private_key(65_537, 2_048)


def certificate(key):
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "team-a")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7)
    builder = builder.not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
    builder = builder.not_valid_after(datetime(2027, 1, 1, tzinfo=UTC))
    names = x509.SubjectAlternativeName([x509.DNSName("a.example.com")])
    builder = builder.add_extension(names, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


@pytest.mark.parametrize(
    ("source", "value"),
    [
        pytest.param("Issuer.CommonName", "team-a", id="issuer"),
        pytest.param("Subject.Names[0].Type", [2, 5, 4, 3], id="names"),
        pytest.param("NotAfter", "2027-01-01T00:00:00Z", id="end"),
        pytest.param("SerialNumber", 7, id="serial-number"),
        pytest.param("DNSNames", ["a.example.com"], id="dns-names"),
        pytest.param("IsCA", False, id="no-authority"),
        pytest.param("PublicKey.E", 65_537, id="key"),
    ],
)
def test_certificates_are_decoded(rsa_key, source, value):
    assert run(f"x509.decode(object.pem).{source}", object={"pem": certificate(rsa_key)}) == value


def test_requests_for_certificates_are_decoded(rsa_key):
    name = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "research")])
    request = x509.CertificateSigningRequestBuilder(name).sign(rsa_key, hashes.SHA256())
    pem = request.public_bytes(Encoding.PEM).decode()

    assert run("x509.decode(object.pem).Subject.Organization", object={"pem": pem}) == ["research"]


def test_certificates_of_other_keys_than_rsa_are_refused():
    pem = certificate(ec.generate_private_key(ec.SECP256R1()))

    with pytest.raises(CelError, match="certificate should use rsa algorithm"):
        run("x509.decode(object.pem)", object={"pem": pem})


OF_TEXT = [
    overload
    for overloads in kyverno_environment(volatile=VOLATILE).functions.values()
    for overload in overloads
    if overload.parameters and {kind.name for kind in overload.parameters} == {"string"}
]
TEXTS = st.one_of(
    st.text(max_size=30),
    st.text("[](){}*+?|\\^$.-,a1:/@%\n", max_size=30),
    st.sampled_from(["-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----", "1Gi", "::1"]),
)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("overload", OF_TEXT, ids=lambda overload: overload.name)
def test_functions_of_text_fail_in_cels_words_only(overload, data):
    arguments = [data.draw(TEXTS) for _ in overload.parameters]

    with suppress(CelError):
        overload.run(*arguments)
