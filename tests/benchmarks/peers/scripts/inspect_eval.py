"""inspect-ai: `generate()` and `match()`, or its `react` agent with a tool; its own log format."""

import os

import given

os.environ |= {"MOCK_API_KEY": "none", "MOCK_BASE_URL": given.address, "INSPECT_DISPLAY": "none"}

from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.agent import react
from inspect_ai.dataset import Sample, json_dataset
from inspect_ai.scorer import match
from inspect_ai.solver import generate
from inspect_ai.tool import tool


@tool
def lookup():
    async def execute(query: str) -> str:
        """Look something up.

        Args:
            query: what to look for
        """
        return given.FOUND.format(query)

    return execute


def sample(row):
    return Sample(id=row["id"], input=row["question"], target=row["answer"])


solver = react(prompt=None, tools=[lookup()]) if given.steps else generate()
task = Task(dataset=json_dataset(given.tasks, sample), solver=solver, scorer=match(numeric=True))
(log,) = evaluate(
    task,
    model="openai-api/mock/mock",
    max_connections=given.in_flight,
    max_samples=given.in_flight,
    display="none",
    log_dir=str(given.folder / "logs"),
    log_level="error",
    temperature=0,
    max_tokens=256,
)
written = log.results.completed_samples if log.results else 0
given.tell(written, len(given.rows()) - written)
