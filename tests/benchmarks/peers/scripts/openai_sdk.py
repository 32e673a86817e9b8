"""The openai SDK and a semaphore; with the word `aiohttp` over that client."""

import openai
from gathering import gather
from given import address, words

over = {"http_client": openai.DefaultAioHttpClient()} if "aiohttp" in words else {}
client = openai.AsyncOpenAI(base_url=address, api_key="none", **over)


async def ask(question):
    reply = await client.chat.completions.create(
        model="mock", messages=[{"role": "user", "content": question}], temperature=0, max_tokens=256
    )
    return reply.choices[0].message.content


gather(ask)
