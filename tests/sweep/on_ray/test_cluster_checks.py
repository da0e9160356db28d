"""What machines say about themselves, what is wrong with it, and which kind a study runs on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sweep.errors import PreflightError
from sweep.on_ray.machines import NodeFacts, Pin, choose_kind, fits, gather, tracking_trouble, troubles

HEAD = NodeFacts(
    node="head (10.0.0.1)",
    node_id="h",
    versions={"torch": "2.13.0", "ray": "2.60.0"},
    instruction_set="x86_64 AVX2",
    free={"/tmp": 10 * 2**30},
)


def node(node_id: str, kind: str = "", *, cpus: int = 4, gpus: int = 1) -> dict[str, Any]:
    resources = {"CPU": cpus, "GPU": gpus} | ({f"accelerator_type:{kind}": 1.0} if kind else {})
    return {"NodeID": node_id, "Alive": True, "Resources": resources}


def facts(node_id: str, instruction_set: str = "x86_64 AVX2") -> NodeFacts:
    return replace(HEAD, node_id=node_id, instruction_set=instruction_set)


def test_gathered_here_is_without_trouble_against_itself() -> None:
    here = gather("sqlite:///mlflow.db")
    assert here.versions["ray"] == "2.60.0"
    assert here.versions["pairsweep"].startswith("code ")
    assert troubles(here, [here], needed_bytes=1) == []


def test_a_machine_with_another_version_is_named_with_both_versions() -> None:
    other = replace(HEAD, node="worker (10.0.0.2)", versions={"torch": "2.12.0", "ray": "2.60.0"})
    (line,) = troubles(HEAD, [HEAD, other])
    assert line.startswith("worker (10.0.0.2): other versions than on the head: torch 2.12.0 (the head has 2.13.0);")


def test_a_missing_package_a_full_disk_and_no_tracking_server_are_one_line_each() -> None:
    other = replace(HEAD, node="w", versions={"ray": "2.60.0"}, free={"/tmp": 5 * 2**20}, tracking="it does not answer")
    missing, tracking, disk = troubles(HEAD, [other])
    assert "torch missing (the head has 2.13.0)" in missing
    assert tracking == "w: tracking server: it does not answer"
    assert disk == "w: disk: /tmp has 5 MiB free, needed are 512"


def test_one_kind_needs_no_pin() -> None:
    nodes = [node("a", "A10G"), node("b", "A10G")]
    assert choose_kind(nodes, [facts("a"), facts("b")], cpus=1, gpus=1, recorded=[]) == Pin()


def test_of_two_gpu_kinds_the_one_that_holds_more_cells() -> None:
    nodes = [node("a", "A10G"), node("b", "T4"), node("c", "T4")]
    pin = choose_kind(nodes, [facts(n["NodeID"]) for n in nodes], cpus=1, gpus=1, recorded=[])
    assert pin == Pin(kind="T4", resources={"accelerator_type:T4": 0.001})
    assert [pin.allows(one) for one in nodes] == [False, True, True]


def test_a_study_stays_on_the_kind_of_its_finished_cells() -> None:
    nodes = [node("a", "A10G"), node("b", "T4"), node("c", "T4")]
    pin = choose_kind(nodes, [facts(n["NodeID"]) for n in nodes], cpus=1, gpus=1, recorded=["NVIDIA A10G"])
    assert pin.kind == "A10G"


def test_finished_cells_of_a_kind_that_is_not_there_refuse_to_mix() -> None:
    nodes = [node("a", "T4")]
    with pytest.raises(PreflightError, match="finished cells ran on NVIDIA A10G, this cluster has T4"):
        choose_kind(nodes, [facts("a")], cpus=1, gpus=1, recorded=["NVIDIA A10G"])


def test_processors_of_two_kinds_are_kept_apart_by_machine() -> None:
    nodes = [node("a", gpus=0), node("b", gpus=0, cpus=8), node("c", gpus=0)]
    known = [facts("a", "x86_64 AVX512"), facts("b"), facts("c", "x86_64 AVX512")]
    assert choose_kind(nodes, known, cpus=1, gpus=0, recorded=[]).node_ids in (("a", "c"), ("b",))
    pin = choose_kind(nodes[:2], known[:2], cpus=1, gpus=0, recorded=[])
    assert pin == Pin(kind="x86_64 AVX2", node_ids=("b",))


def test_a_machine_too_small_for_a_cell_does_not_count() -> None:
    assert fits(node("a", cpus=2, gpus=0), 2, 0)
    assert not fits(node("a", cpus=2, gpus=0), 2, 0.5)
    assert not fits(node("a", cpus=1), 2, 0)


class _Refusing(BaseHTTPRequestHandler):
    answer = (200, b"{}")

    def do_GET(self) -> None:
        self.send_response(self.answer[0])
        self.end_headers()
        self.wfile.write(self.answer[1])

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[str]:
    found = ThreadingHTTPServer(("127.0.0.1", 0), _Refusing)
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{found.server_port}"
    found.shutdown()
    thread.join()
    found.server_close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, b"{}"), ""),
        ((403, b"Invalid Host header - possible DNS rebinding attack detected"), "refuses the host name '127.0.0.1:"),
        ((401, b"You are not authenticated"), "refuses the user (HTTP 401)"),
        ((500, b"broken\npipe"), "answers HTTP 500 there (broken pipe)"),
        ((200, b"<html>"), "answers with HTML there instead of JSON; a login page or a proxy?"),
        ((200, b"hello"), "does not answer there"),
    ],
)
def test_what_a_tracking_server_answers(
    server: str, answer: tuple[int, bytes], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Refusing, "answer", answer)
    found = tracking_trouble(server)
    assert (found == "") == (said == "")
    assert said in found
    assert "\n" not in found


def test_a_tracking_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.on_ray.machines.TRACKING_WAIT_S", 0.0)
    assert "does not answer there (Connection refused)" in tracking_trouble("http://127.0.0.1:9")
