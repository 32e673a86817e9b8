"""litellm and a semaphore."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from gathering import gather
from given import address

litellm.suppress_debug_info = True
litellm.telemetry = False


async def ask(question):
    reply = await litellm.acompletion(
        model="openai/mock",
        api_base=address,
        api_key="none",
        messages=[{"role": "user", "content": question}],
        temperature=0,
        max_tokens=256,
    )
    return reply.choices[0].message.content


gather(ask)
