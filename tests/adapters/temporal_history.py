"""The history that a Temporal server would write for a workflow of activities, one after another.

There is no server without a network. So the activities run in the SDK's own environment for them,
their events are written down here in the server's own form, and the SDK's replayer judges: it runs
the workflow's code against them, and refuses a history that the code would not have made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from temporalio.api.common.v1 import ActivityType, Payloads, WorkflowType
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import History, HistoryEvent
from temporalio.converter import DataConverter
from temporalio.testing import ActivityEnvironment

WORKFLOW, RUN, QUEUE = "agent-1", "5f0c9a52-7f43-4c1d-9a3f-0d5b1f6a7c11", "agents"


class Recorder:
    """Runs activities, and keeps the events of them."""

    def __init__(self, workflow: str, *given: Any) -> None:
        self.history = History()
        self._activities = 0
        started = self._event("WORKFLOW_EXECUTION_STARTED")
        attributes = started.workflow_execution_started_event_attributes
        attributes.workflow_type.CopyFrom(WorkflowType(name=workflow))
        attributes.input.CopyFrom(self._payloads(*given))
        attributes.original_execution_run_id = attributes.first_execution_run_id = RUN
        attributes.workflow_id, attributes.attempt = WORKFLOW, 1
        attributes.task_queue.name = QUEUE
        attributes.workflow_task_timeout.seconds = 10
        self._task()

    async def run(self, name: str, function: Callable[..., Any], given: Any, times: int = 1) -> Any:
        """What an activity gives, tried so many times; the last try counts."""
        self._activities += 1
        id = str(self._activities)
        environment = ActivityEnvironment()
        environment.info = replace(
            environment.info, workflow_id=WORKFLOW, workflow_run_id=RUN, activity_id=id
        )
        for _ in range(times):
            result = await environment.run(function, given)
        scheduled = self._event("ACTIVITY_TASK_SCHEDULED")
        planned = scheduled.activity_task_scheduled_event_attributes
        planned.activity_id, planned.task_queue.name = id, QUEUE
        planned.activity_type.CopyFrom(ActivityType(name=name))
        planned.input.CopyFrom(self._payloads(given))
        planned.workflow_task_completed_event_id = self._completed
        started = self._event("ACTIVITY_TASK_STARTED")
        began = started.activity_task_started_event_attributes
        began.scheduled_event_id, began.attempt = scheduled.event_id, times
        ended = self._event("ACTIVITY_TASK_COMPLETED").activity_task_completed_event_attributes
        ended.scheduled_event_id, ended.started_event_id = scheduled.event_id, started.event_id
        ended.result.CopyFrom(self._payloads(result))
        self._task()
        return result

    def end(self, result: Any) -> History:
        ended = self._event("WORKFLOW_EXECUTION_COMPLETED")
        attributes = ended.workflow_execution_completed_event_attributes
        attributes.result.CopyFrom(self._payloads(result))
        attributes.workflow_task_completed_event_id = self._completed
        return self.history

    def _task(self) -> None:
        """The workflow's code is asked what to do next."""
        scheduled = self._event("WORKFLOW_TASK_SCHEDULED")
        scheduled.workflow_task_scheduled_event_attributes.task_queue.name = QUEUE
        started = self._event("WORKFLOW_TASK_STARTED")
        began = started.workflow_task_started_event_attributes
        began.scheduled_event_id = scheduled.event_id
        completed = self._event("WORKFLOW_TASK_COMPLETED")
        ended = completed.workflow_task_completed_event_attributes
        ended.scheduled_event_id, ended.started_event_id = scheduled.event_id, started.event_id
        self._completed = completed.event_id

    def _event(self, name: str) -> HistoryEvent:
        event = self.history.events.add()
        event.event_id = len(self.history.events)
        event.event_type = EventType.Value(f"EVENT_TYPE_{name}")
        event.event_time.seconds = 1_790_000_000 + event.event_id
        return event

    def _payloads(self, *values: Any) -> Payloads:
        return Payloads(payloads=DataConverter.default.payload_converter.to_payloads(values))
