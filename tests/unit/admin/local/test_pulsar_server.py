"""The local Pulsar: how it is started, and that it listens on this machine alone."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from mailmend.admin.local.jars import Java
from mailmend.admin.local.pulsar import HEAP_MIB, PULSAR, Pulsar, command_of, conf_of
from mailmend.admin.local.server import Site

SITE = Site(Path("/data/pulsar"), {"pulsar": 6651, "admin": 8081})
COMMAND = command_of(Java(Path("/jdk/bin/java"), 17), Path("/jars"), SITE)
_SETTINGS = dict(line.split("=", 1) for line in conf_of(SITE).splitlines())


def test_it_listens_on_this_machine_alone() -> None:
    """The bookkeeper would listen on every address without its interface."""
    assert _SETTINGS["bindAddress"] == _SETTINGS["advertisedAddress"] == "127.0.0.1"
    assert _SETTINGS["listeningInterface"].startswith("lo")
    assert (_SETTINGS["brokerServicePort"], _SETTINGS["webServicePort"]) == ("6651", "8081")


def test_its_memory_is_bounded() -> None:
    assert f"-Xmx{HEAP_MIB}m" in COMMAND
    assert f"-XX:MaxDirectMemorySize={HEAP_MIB}m" in COMMAND


def test_its_data_are_in_its_folder_and_its_command_line_names_that() -> None:
    for option in ("--bookkeeper-dir", "--metadata-dir", "--config"):
        assert COMMAND[COMMAND.index(option) + 1].startswith("/data/pulsar/")


def test_it_says_how_it_is_reached(tmp_path: Path) -> None:
    assert Pulsar().contacts(SITE) == {"pulsar": "pulsar://127.0.0.1:6651", "admin": "http://127.0.0.1:8081"}
    site = Site(tmp_path, SITE.ports)
    Pulsar().write_files(tmp_path, site)
    assert str(Pulsar().log(site)) in (tmp_path / "log4j2.xml").read_text()
    assert Pulsar.title == PULSAR.name == "Pulsar 4.2.4"


def test_it_is_ready_once_queues_can_be_made() -> None:
    """A new one answers before its namespace is there, and refuses topics until then."""
    answers = {"/admin/v2/brokers/health": b"ok"}

    class Admin(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answers.get(self.path)
            self.send_response(404 if body is None else 200)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Admin) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        site = Site(SITE.folder, {"pulsar": 1, "admin": server.server_address[1]})
        early = (Pulsar().answers(site), Pulsar().is_ready(site))
        answers["/admin/v2/namespaces/public/default"] = b"{}"
        late = (Pulsar().answers(site), Pulsar().is_ready(site))
        server.shutdown()

    assert (early, late) == ((True, False), (True, True))
