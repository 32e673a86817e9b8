"""What a script does that has only a client: a task per row, a semaphore, a JSON line per reply."""

import asyncio
import json

import given


def gather(ask):
    """`ask` is an async function from a question to the text of the reply."""

    async def main():
        free, failed = asyncio.Semaphore(given.in_flight), []
        with (given.folder / "out.jsonl").open("w") as out:

            async def one(row):
                async with free:
                    text = await ask(row["question"])
                found = {"id": row["id"], "prompt": row["question"], "completion": text}
                out.write(json.dumps({**found, "em": float(row["answer"] in text)}) + "\n")
                out.flush()

            rows = given.rows()
            done = await asyncio.gather(*map(one, rows), return_exceptions=True)
            failed = [repr(each) for each in done if each is not None]
        given.tell(len(rows) - len(failed), len(failed))

    asyncio.run(main())
