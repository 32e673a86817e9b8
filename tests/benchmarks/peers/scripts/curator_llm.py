"""curator: its online backend for OpenAI-compatible servers, limits out of the way."""

import importlib.util
import os
from pathlib import Path

import given

litellm = importlib.util.find_spec("litellm").submodule_search_locations[0]
os.environ |= {
    "CURATOR_DISABLE_RICH_DISPLAY": "1",
    "CURATOR_CACHE_DIR": str(given.folder / "curator"),
    "CURATOR_VIEWER": "0",
    "HOSTED_CURATOR_VIEWER": "0",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "TIKTOKEN_CACHE_DIR": str(Path(litellm) / "litellm_core_utils" / "tokenizers"),
}

from bespokelabs import curator  # noqa: E402, it reads the variables
from datasets import Dataset  # noqa: E402


class QA(curator.LLM):
    def prompt(self, row):
        return row["question"]

    def parse(self, row, reply):
        return [{"id": row["id"], "completion": reply, "em": float(row["answer"] in reply)}]


if __name__ == "__main__":
    rows = given.rows()
    backend = {
        "base_url": given.address,
        "api_key": "none",
        "max_requests_per_minute": 10**7,
        "max_tokens_per_minute": 10**10,
        "max_concurrent_requests": given.in_flight,
    }
    llm = QA(
        model_name="mock",
        backend="openai",
        generation_params={"temperature": 0, "max_tokens": 256},
        backend_params=backend,
    )
    found = llm(Dataset.from_list(rows))
    written = len(getattr(found, "dataset", found))
    given.tell(written, len(rows) - written)
