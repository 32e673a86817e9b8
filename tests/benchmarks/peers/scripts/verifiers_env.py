"""verifiers 0.1: `SingleTurnEnv`, or `ToolEnv` with a tool; results saved."""

import os

import given

os.environ["MOCK_KEY"] = "none"

import verifiers as vf
from datasets import Dataset
from verifiers.types import ClientConfig


def correct(completion, answer, **more) -> float:
    last = completion[-1]
    return float(answer in str(last["content"] if isinstance(last, dict) else last.content))


def lookup(query: str) -> str:
    """Look something up.

    Args:
        query: what to look for
    """
    return given.FOUND.format(query)


if __name__ == "__main__":
    rows = given.rows()
    data, rubric = Dataset.from_list(rows), vf.Rubric(funcs=[correct])
    env = (
        vf.ToolEnv(eval_dataset=data, tools=[lookup], rubric=rubric, max_turns=20)
        if given.steps
        else vf.SingleTurnEnv(eval_dataset=data, rubric=rubric)
    )
    found = env.evaluate_sync(
        client=ClientConfig(api_key_var="MOCK_KEY", api_base_url=given.address),
        model="mock",
        sampling_args={"temperature": 0, "max_tokens": 256},
        num_examples=-1,
        rollouts_per_example=1,
        max_concurrent=given.in_flight,
        results_path=given.folder / "results",
        save_results=True,
    )
    outputs = found["outputs"]
    errors = sum(1 for output in outputs if output.get("error"))
    given.tell(len(outputs) - errors, errors)
