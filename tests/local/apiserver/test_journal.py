import pytest

from policyd.errors import ConfigurationError
from policyd.local.apiserver import ApiServer, ServerOptions
from tests.local.apiserver.client import CONFIG_MAPS, config_map, session_with
from tests.local.apiserver.test_custom_kinds import CRON_TABS, DEFINITIONS, cron_tab, definition

pytestmark = pytest.mark.anyio


@pytest.fixture
def run(tmp_path):
    """Run something with a server that keeps its state in a file."""
    options = ServerOptions(state_file=tmp_path / "state")

    async def run(work):
        server = ApiServer(options)
        await server.start()
        async with session_with(server) as api:
            found = await work(api)
        await server.stop()
        return found

    return run


async def test_objects_outlive_the_server(run):
    async def write(api):
        await api.create(DEFINITIONS, definition())
        await api.create(CRON_TABS, cron_tab())
        await api.create(CONFIG_MAPS, config_map("gone"))
        await api.delete(f"{CONFIG_MAPS}/gone")
        await api.create(CONFIG_MAPS, config_map("kept", a="1"))
        return (await api.patch(f"{CONFIG_MAPS}/kept", {"data": {"a": "2"}})).body

    async def read(api):
        return [await api.get(f"{CONFIG_MAPS}/{n}") for n in ("kept", "gone")], await api.get(
            f"{CRON_TABS}/one"
        )

    written = await run(write)
    (kept, gone), custom = await run(read)

    assert kept.body == written
    assert gone.code == 404
    assert custom.body["spec"]["replicas"] == 1


async def test_versions_go_on_and_old_watches_do_not(run):
    async def write(api):
        await api.create(CONFIG_MAPS, config_map("a"))
        await api.delete(f"{CONFIG_MAPS}/a")
        return (await api.get(CONFIG_MAPS)).body["metadata"]["resourceVersion"]

    async def read(api):
        async with api.watching(CONFIG_MAPS, resourceVersion="3") as watch:
            event = await watch.next_event()
        return (await api.get(CONFIG_MAPS)).body["metadata"]["resourceVersion"], event

    before = await run(write)
    after, event = await run(read)

    assert int(after) >= int(before)
    assert event["object"]["code"] == 410


async def test_a_line_that_was_cut_short_is_left_out(run, tmp_path):
    async def write(api):
        await api.create(CONFIG_MAPS, config_map("whole"))
        await api.create(CONFIG_MAPS, config_map("half"))

    async def read(api):
        listed = (await api.get(CONFIG_MAPS)).body["items"]
        return [item["metadata"]["name"] for item in listed]

    await run(write)
    path = tmp_path / "state"
    path.write_bytes(path.read_bytes()[:-40])

    assert await run(read) == ["whole"]


async def test_a_file_that_cannot_be_written_is_reported_in_one_sentence(tmp_path):
    options = ServerOptions(state_file=tmp_path / "missing" / "state")

    with pytest.raises(ConfigurationError, match="cannot keep state in"):
        ApiServer(options)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("# my notes\n", id="text"),
        pytest.param('{"apiVersion": "v1", "kind": "ConfigMap"}\n', id="json-of-something-else"),
    ],
)
async def test_a_file_of_something_else_is_not_overwritten(tmp_path, content):
    file = tmp_path / "notes"
    file.write_text(content)

    with pytest.raises(ConfigurationError, match="is not a state file"):
        ApiServer(ServerOptions(state_file=file))

    assert file.read_text() == content


async def test_the_file_is_for_its_owner_alone(run, tmp_path):
    async def nothing(_api): ...

    await run(nothing)

    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600


async def test_a_port_that_is_taken_is_reported_in_one_sentence(server):
    port = int(server.address.rpartition(":")[2])

    with pytest.raises(
        ConfigurationError, match=f"port `{port}` on `127.0.0.1` is taken"
    ) as caught:
        ApiServer(port=port)

    assert "choose another" in caught.value.hint
