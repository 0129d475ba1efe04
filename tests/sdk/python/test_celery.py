"""Celery on Service Bus: a worker in a process of its own, tasks, retries, an estimated time and late acknowledgement."""

import importlib
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import kombu_plain
import pytest
from clock import Clock

RESULT_SECONDS = 60


@pytest.fixture
def app(unstarted_broker, tmp_path, monkeypatch):
    broker = unstarted_broker.start(flags=("--test-clock",))
    (tmp_path / "results").mkdir()
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", broker.ca)
    monkeypatch.setenv("RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("BROKER_URL", kombu_plain.url(broker))
    sys.modules.pop("celery_app", None)
    module = importlib.import_module("celery_app")
    yield module
    module.app.close()


@contextmanager
def worker(log):
    """A worker, ended by its process id."""
    with open(log, "ab") as out:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "celery", "-A", "celery_app", "worker", "--pool", "solo", "-l", "INFO"),
                *("--without-gossip", "--without-mingle", "--without-heartbeat"),
            ],
            cwd=Path(__file__).parent, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        print(Path(log).read_text())


def test_tasks_run_are_retried_and_wait_for_their_time(app, tmp_path):
    # S-283
    with worker(tmp_path / "worker.log"):
        sums = [app.add.delay(number, number) for number in range(10)]
        assert [each.get(timeout=RESULT_SECONDS) for each in sums] == [2 * number for number in range(10)]
        assert app.third_time_lucky.delay(7).get(timeout=RESULT_SECONDS) == 70
        began = time.monotonic()
        assert app.add.apply_async((1, 2), countdown=1).get(timeout=RESULT_SECONDS) == 3
        assert time.monotonic() - began >= 1


def test_the_task_of_a_worker_that_died_goes_to_another(app, tmp_path, unstarted_broker):
    # S-283: acknowledged late, so it is still locked when its worker dies, and free when the lock has ended
    marker = tmp_path / "begun"
    with worker(tmp_path / "first.log"):
        result = app.hang_once.delay(str(marker))
        deadline = time.monotonic() + RESULT_SECONDS
        while not marker.exists():
            assert time.monotonic() < deadline, "no worker began"
            time.sleep(0.05)
    Clock(unstarted_broker).advance("PT61S")
    with worker(tmp_path / "second.log"):
        assert result.get(timeout=RESULT_SECONDS) == "done by another"
