"""As little as can be: a loop over pyreqwest that writes a JSON line an episode. All others are held to it."""

import asyncio
import gc
import os

import given
import orjson
import uvloop
from pyreqwest.client import ClientBuilder

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} something",
            "parameters": {"type": "object", "properties": {word: {"type": "string"}}, "required": [word]},
        },
    }
    for name, word in (("lookup", "query"), ("submit", "answer"))
]
MORE = {"tools": TOOLS} if given.steps else {}


async def main():
    client = ClientBuilder().max_connections(given.in_flight + 10).build()
    url, rows = f"{given.address}/chat/completions", given.rows()
    left, out = iter(rows), os.open(given.folder / "out.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def call(messages):
        body = orjson.dumps(
            {"model": "mock", "messages": messages, "temperature": 0, "max_tokens": 256, **MORE}
        )
        request = client.post(url).header("content-type", "application/json").body_bytes(body).build()
        response = await request.send()
        return orjson.loads(bytes(await response.bytes()))

    async def episode(row):
        messages, usage = [{"role": "user", "content": row["question"]}], []
        while True:
            reply = await call(messages)
            message = reply["choices"][0]["message"]
            usage.append(reply["usage"])
            messages.append(message)
            asked = (message.get("tool_calls") or [None])[0]
            if asked is None or asked["function"]["name"] == "submit":
                return {"id": row["id"], "messages": messages, "usage": usage}
            words = orjson.loads(asked["function"]["arguments"])
            seen = given.FOUND.format(words["query"])
            messages.append({"role": "tool", "tool_call_id": asked["id"], "content": seen})

    async def work():
        for row in left:
            os.write(out, orjson.dumps(await episode(row), option=orjson.OPT_APPEND_NEWLINE))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(given.in_flight, len(rows))):
            tasks.create_task(work())
    os.close(out)
    given.tell(len(rows), 0)


gc.set_threshold(50_000, 20, 50)
uvloop.run(main())
