"""An agent as a workflow of Temporal, with a claim and with messages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import activity, workflow

with workflow.unsafe.imports_passed_through():
    import clew
    from clew.adapters.workflows import Claim

TIMEOUT = timedelta(minutes=5)
WORDS, OUTPUT = "thinking aloud, " * 60, "a line of the tool's output\n" * 140  # 1 and 4 KB


class Activities:
    """What the workflow does to the world. The model is a script, which counts its calls."""

    def __init__(self, store: clew.Store) -> None:
        self.store = store
        self.asked = 0

    def model(self, messages: list[Any]) -> dict[str, Any]:
        self.asked += 1
        n = 1 + sum(message["role"] == "assistant" for message in messages)
        call = {"type": "tool_use", "id": f"toolu_{n}", "name": "read", "input": {"n": n}}
        return {
            "id": f"msg_{n}",
            "type": "message",
            "role": "assistant",
            "model": "claude-test",
            "content": [{"type": "text", "text": WORDS}, call],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }

    @activity.defn
    async def ask(self, claim: Claim) -> Claim:
        info = activity.info()
        step = f"{info.workflow_id}/{info.workflow_run_id}/{info.activity_id}"
        done = await claim.aafter(self.store, step)
        if done is not None:
            return done
        context = await claim.acontext(self.store, "anthropic")
        reply = self.model(context.messages)
        return await claim.aappend_response(self.store, reply, step=step)

    @activity.defn
    async def run_tools(self, claim: Claim) -> Claim:
        info = activity.info()
        step = f"{info.workflow_id}/{info.workflow_run_id}/{info.activity_id}"
        reply, _ = self.store.get(claim.thread).path(claim.leaf, limit=2)  # and its usage
        call = reply.body["content"][1]["id"]
        return await claim.aappend_results(self.store, {call: OUTPUT}, step=step)

    @activity.defn
    async def ask_with_messages(self, messages: list[Any]) -> Any:
        return {"role": "assistant", "content": self.model(messages)["content"]}

    @activity.defn
    async def run_tools_with_messages(self, message: Any) -> Any:
        call = message["content"][1]["id"]
        block = {"type": "tool_result", "tool_use_id": call, "content": OUTPUT}
        return {"role": "user", "content": [block]}


@workflow.defn
class AgentWithClaim:
    @workflow.run
    async def run(self, claim: Claim, calls: int) -> Claim:
        for _ in range(calls):
            for name in ("ask", "run_tools"):
                claim = await workflow.execute_activity(
                    name, claim, result_type=Claim, start_to_close_timeout=TIMEOUT
                )
        return claim


@workflow.defn
class AgentWithMessages:
    @workflow.run
    async def run(self, messages: list[Any], calls: int) -> int:
        for _ in range(calls):
            for name, given in (("ask", None), ("run_tools", -1)):
                messages.append(
                    await workflow.execute_activity(
                        f"{name}_with_messages",
                        messages if given is None else messages[given],
                        start_to_close_timeout=TIMEOUT,
                    )
                )
        return len(messages)
