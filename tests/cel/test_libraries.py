"""The functions of the libraries do what the API server's do."""

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.cel import Budget, CelError, admission_environment
from policyd.cel.compile.program import compile_expression
from policyd.cel.environments import extended_environment
from policyd.cel.lib.authorizer import Authorization, Authorizer
from policyd.cel.lib.network import Cidr, Ip
from policyd.cel.types import DYN
from policyd.cel.values import UInt


def evaluate(source):
    return compile_expression(source, extended_environment()).evaluate({}, Budget())


@pytest.mark.parametrize(
    ("source", "value"),
    [
        # strings
        ("'tacocat'.charAt(7)", ""),
        ("'hello mellow'.indexOf('ello', 2)", 7),
        ("'hello mellow'.lastIndexOf('ello', 6)", 1),
        ("'a-b-c'.split('-', 2)", ["a", "b-c"]),
        ("'abc'.split('', 2)", ["a", "bc"]),
        ("['a', 'b'].join('-')", "a-b"),
        ("'hello hello'.replace('he', 'we', 1)", "wello hello"),
        ("'tacocat'.substring(4)", "cat"),
        (r"'  \ttrim\n '.trim()", "trim"),
        ("'TacoCÆt'.lowerAscii()", "tacocÆt"),
        (r"""strings.quote('a\n"b"')""", '"a\\n\\"b\\""'),
        # format
        ("'%s and %d'.format(['x', 7])", "x and 7"),
        ("'%.2f %e'.format([1.239, 1500.0])", "1.24 1.500000e+03"),
        ("'%x %X %o %b'.format([255, 'hi', 8, true])", "ff 6869 10 1"),
        (
            "'%s'.format([[1, 2.0, true, null, {'b': 1, 'a': b'x'}]])",
            "[1, 2, true, null, {a: x, b: 1}]",
        ),
        ("'%s %s'.format([duration('90s'), type(1)])", "90s int"),
        ("'100%%'.format([])", "100%"),
        # lists
        ("[3, 1, 2].sort()", [1, 2, 3]),
        ("['aa', 'b'].sortBy(x, x.size())", ["b", "aa"]),
        ("[1, [2, [3]]].flatten(2)", [1, 2, 3]),
        ("[1, 1.0, 2, 1u].distinct()", [1, 2]),
        ("[1, 2, 3, 4].slice(1, 3)", [2, 3]),
        ("[1, 2, 3].sum() + [1, 2].max() + [3, 2].min()", 10),
        ("[1, 2, 2].isSorted()", True),
        ("[1.5].filter(x, x > 2.0).sum() + 1.5", 1.5),
        ("[2u].filter(x, x > 2u).sum() + 1u == 1u", True),
        ("[duration('1s')].filter(x, false).sum() == duration('0s')", True),
        ("[dyn(1), dyn('a'), dyn(0)].max()", 1),
        ("[dyn('a'), dyn(1)].isSorted()", True),
        ("'a'.includes('a') && 1.includes(1.0) && !{'a': 1}.includes('a')", True),
        ("[[1]].includes([1.0]) && !dyn([1]).includes('1')", True),
        ("[1, 2, 1].lastIndexOf(1)", 2),
        ("lists.range(3)", [0, 1, 2]),
        ("[].first().hasValue() || [1, 2].last().value() == 1", False),
        # sets
        ("sets.contains([1, 2, 3], [2, 2.0])", True),
        ("sets.equivalent([1, 2], [2, 1, 1])", True),
        ("sets.intersects([1], [2])", False),
        # regex
        ("'abc 123'.find('[0-9]+')", "123"),
        ("'1 22 333'.findAll('[0-9]+', 2)", ["1", "22"]),
        ("'aé'.matches('^a.$')", True),
        # mathematics
        ("math.greatest(1, 2.5, 2u)", 2.5),
        ("math.least([3, 1])", 1),
        ("math.round(-1.5)", -2.0),
        ("math.bitShiftRight(-1, 1)", 2**63 - 1),
        ("math.sign(-2.0)", -1.0),
        # encoders
        ("string(base64.decode(base64.encode(b'hi')))", "hi"),
        # times
        ("timestamp('2024-02-29T12:30:00.5Z').getMilliseconds()", 500),
        ("timestamp('2024-02-29T23:30:00Z').getDate('+01:00')", 1),
        ("timestamp('2024-07-01T00:00:00Z').getHours('Europe/Berlin')", 2),
        ("string(duration('1h30m1.5s'))", "5401.5s"),
        ("string(timestamp('2024-01-01T00:00:00+01:00'))", "2023-12-31T23:00:00Z"),
        # quantities
        ("quantity('1Gi').compareTo(quantity('1024Mi'))", 0),
        ("quantity('1').sub(quantity('100m')).isLessThan(quantity('1'))", True),
        ("quantity('1500m').asApproximateFloat()", 1.5),
        ("isQuantity('10Mo')", False),
        # URLs
        ("url('https://user@host:80/a b?q=1'.replace(' ', '%20')).getHost()", "host:80"),
        ("url('https://[::1]:80/').getHostname()", "::1"),
        ("url('/path/a%20b').getEscapedPath()", "/path/a%20b"),
        ("url('https://h/with spaces/').getEscapedPath()", "/with%20spaces/"),
        ("url('https://h/[x]!').getEscapedPath()", "/[x]!"),
        ("url('https://h/x y!').getEscapedPath()", "/x%20y%21"),
        ("url('https://h/x#part?q').getEscapedPath()", "/x"),
        ("url('HTTPS://h').getScheme() + url('mailto:a@b').getHost()", "https"),
        ("url('//h/p').getHost()", "h"),
        ("url('https://h:/').getPort()", ""),
        ("url('https://h/?a=b;c&d=%zz&e=1+1').getQuery()", {"e": ["1 1"]}),
        ("url('https://h/%41') != url('https://h/A') && url('h:a') == url('H:a')", True),
        ("url('https://h/?k=1&k=2&e=').getQuery()", {"k": ["1", "2"], "e": [""]}),
        ("isURL('../relative')", False),
        # addresses
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3')", True),
        ("cidr('10.0.0.0/8').containsCIDR('10.0.0.0/7')", False),
        ("string(cidr('10.1.2.3/8').masked())", "10.0.0.0/8"),
        ("string(ip('2001:DB8::1'))", "2001:db8::1"),
        ("ip('224.0.0.1').isLinkLocalMulticast()", True),
        # versions
        ("semver('1.2.3-rc.1').isLessThan(semver('1.2.3'))", True),
        ("semver('1.0.0-alpha.10').compareTo(semver('1.0.0-alpha.9'))", 1),
        ("isSemver('v1.0', true) && !isSemver('v1.0')", True),
        # formats
        ("format.dns1123Label().validate('a-b').hasValue()", False),
        ("format.named('uuid').value().validate('x').value()", ["does not match the UUID format"]),
        ("format.qualifiedName().validate('a/b/c').hasValue()", True),
        ("format.uri().validate('no').value()", ['parse "no": invalid URI for request']),
        ("format.byte().validate('').value()", ["invalid base64"]),
        (
            f"format.labelValue().validate('{'a' * 64}').value()",
            ["must be no more than 63 bytes"],
        ),
        # optionals
        ("optional.ofNonZeroValue(0).hasValue()", False),
        ("[optional.of(1), optional.none()].unwrapOpt()", [1]),
        ("{'a': 1}.?a.optMap(x, x + 1).value()", 2),
        ("optional.none().or(optional.of(1)).value()", 1),
        # JSON patches
        ("jsonpatch.escapeKey('a/b~c')", "a~1b~0c"),
        # bindings and macros with two variables
        ("cel.bind(x, 2, x * x)", 4),
        ("['a', 'b'].transformMapEntry(i, v, {v: i})", {"a": 0, "b": 1}),
        ("{'a': 1}.transformMap(k, v, k + string(v))", {"a": "a1"}),
        ("[1, 2].existsOne(i, v, i == v - 1 && v > 1)", True),
        # conversions
        ("uint('7')", UInt(7)),
        ("string(1e21) + string(0.1) + string(1.0)", "1e+210.11"),
        ("int(timestamp(7))", 7),
        ("bool('t') && !bool('FALSE')", True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_functions_have_results(source, value):
    result = evaluate(source)

    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("'abc'.charAt(4)", "index out of range: 4"),
        ("'%d'.format(['x'])", "decimal clause can only be used on integers, was given string"),
        ("'%s'.format([])", "index 0 out of range"),
        ("'%z'.format([1])", 'unrecognized formatting clause "z"'),
        ("[].min()", "min called on empty list"),
        ("[1, 2].slice(1, 3)", "list is length 2"),
        ("dyn([1, 'a']).sort()", "list elements must have the same type"),
        ("math.bitShiftLeft(1, -1)", "negative offset: -1"),
        ("base64.decode('!')", "illegal base64"),
        ("timestamp('2023-02-29T00:00:00Z')", "invalid timestamp"),
        ("timestamp(0).getHours('Nowhere/Land')", "unknown time zone Nowhere/Land"),
        ("duration('1d')", "invalid duration"),
        ("duration('2562048h')", "duration overflow"),
        ("timestamp(253402300800)", "timestamp overflow"),
        ("quantity('1Zi')", "must match the regular expression"),
        ("quantity('1500m').asInteger()", "cannot convert value to integer"),
        ("url('no url')", 'parse "no url": invalid URI for request'),
        ("url('')", "empty url"),
        ("url('https://h/%zz')", 'invalid URL escape "%zz"'),
        ("url('https://a%41b/')", 'invalid URL escape "%41"'),
        ("url('https://a b/')", 'invalid character " " in host name'),
        ("url('https://h:8x/')", 'invalid port ":8x" after host'),
        ("url('https://[::1/')", "missing ']' in host"),
        ("url('https://a[@h/')", "invalid userinfo"),
        ("url(':a')", "missing protocol scheme"),
        ("url('/\\n')", "invalid control character in URL"),
        ("'abc'.substring(5)", "index out of range: 5"),
        ("'abc'.substring(1, 9)", "index out of range: 9"),
        ("'abc'.substring(2, 1)", "invalid substring range. start: 2, end: 1"),
        ("ip('::ffff:1.2.3.4')", "IPv4-mapped IPv6 address is not allowed"),
        ("ip('fe80::1%eth0')", "zone value is not allowed"),
        ("ip('1.2.3')", "IPv4 address too short"),
        ("ip('01.2.3.4')", "IPv4 field has octet with leading zero"),
        ("ip('1.2.3.256')", "IPv4 field has value >255"),
        ("ip('1.2.3.x')", "unexpected character"),
        ("ip('1..2.3')", "IPv4 field must have at least one digit"),
        ("ip('12345::')", "each group must have 4 or less digits"),
        ("ip('1::2::3')", "multiple :: in address"),
        ("ip('1:2:3')", "address string too short"),
        ("ip('1:2:3:4:5:6:7:8:9')", "trailing garbage after address"),
        ("ip('host')", "unable to parse IP"),
        ("cidr('10.0.0.0')", "no '/'"),
        ("cidr('10.0.0.0/33')", "prefix length out of range"),
        ("semver('1.2.x')", "Invalid character(s) found in patch number"),
        ("semver('01.2.3')", "Major number must not contain leading zeroes"),
        ("{'a': 1, 'b' + '': 2, 'b': 3}", "Failed with repeated key: b"),
        ("[1].transformMapEntry(i, v, {1.5: v})", "unsupported key type: double"),
        ("uint(-1)", "unsigned integer overflow"),
        ("double('1e400')", "type conversion error from 'string' to 'double'"),
        ("[1].filter(x, false).min()", "min called on empty list"),
        ("dyn([true]).sum()", "no such overload: sum"),
        ("dyn([null]).max()", "no such overload: max"),
        ("dyn([{}]).isSorted()", "no such overload: isSorted"),
        ("'a'.matches('[' + '')", "error parsing regexp"),
    ],
    ids=lambda value: value,
)
def test_functions_fail_with_a_reason(source, message):
    with pytest.raises(CelError) as caught:
        evaluate(source)

    assert message in caught.value.message


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param("path(' ')", "path must not be empty", id="path"),
        pytest.param("group('').resource('')", "resource must not be empty", id="resource"),
        pytest.param("serviceAccount('a', 'b_')", "Invalid service account name", id="account"),
        pytest.param("serviceAccount('a.b', 'c')", "Invalid service account namespace", id="its"),
    ],
)
def test_the_authorizer_is_asked_what_can_be_answered(source, message):
    program = compile_expression(f"authorizer.{source} != null", admission_environment())

    with pytest.raises(CelError, match=message):
        program.evaluate({"authorizer": Authorizer(lambda _: Authorization())}, Budget())


@given(st.ip_addresses(), st.integers(0, 128), st.integers(0, 128))
def test_networks_are_those_of_the_standard_library(address, prefix, changed):
    bits = address.max_prefixlen
    other = type(address)(int(address) ^ 1 << changed % bits)
    network = ip_network((address, prefix % (bits + 1)), strict=False)
    found = {"cidr": Cidr(address, network.prefixlen), "other": Ip(other)}
    known = extended_environment().extend(variables=dict.fromkeys(found, DYN))

    def value(source):
        return compile_expression(source, known).evaluate(found, Budget())

    assert value("cidr.masked()").address == network.network_address
    assert value("cidr.containsIP(other)") is (other in network)
