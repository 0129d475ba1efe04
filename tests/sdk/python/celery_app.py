"""The tasks of `test_celery.py`, loaded by its worker too."""

import os
import time
from pathlib import Path

import kombu_plain  # noqa: F401  (it tells the SDK where to look)
from celery import Celery

app = Celery("celery_app", broker=os.environ["BROKER_URL"], backend="file://" + os.environ["RESULTS"])
app.conf.update(
    broker_transport_options={"wait_time_seconds": 1, "peek_lock_seconds": 60},
    # These need broadcasts, which kombu does not do on Service Bus.
    worker_enable_remote_control=False,
    task_acks_late=True,
    task_default_queue="celery.tasks",
    worker_prefetch_multiplier=1,
)


@app.task
def add(left, right):
    return left + right


@app.task(bind=True, max_retries=3)
def third_time_lucky(self, number):
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return number * 10


@app.task
def hang_once(marker):
    """Hangs for the first that comes, until somebody kills them."""
    marker = Path(marker)
    if not marker.exists():
        marker.touch()
        time.sleep(600)
    return "done by another"
