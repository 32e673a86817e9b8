"""A loop over httpx with its pool unlimited: the usual first script."""

import httpx
from gathering import gather
from given import address

client = httpx.AsyncClient(
    timeout=600, limits=httpx.Limits(max_connections=None, max_keepalive_connections=None)
)


async def ask(question):
    body = {
        "model": "mock",
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": 256,
    }
    response = await client.post(f"{address}/chat/completions", json=body)
    return response.raise_for_status().json()["choices"][0]["message"]["content"]


gather(ask)
