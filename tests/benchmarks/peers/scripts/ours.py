"""overnight as a person runs it: the command and a job file, everything on."""

import given

from runner.cli import main

JOB = """
name = "bench"
[models.mock]
provider = "openai"
model = "mock"
base_url = "{address}"
in_flight = {in_flight}
key_env = ""
price = {{ input = 1.0, output = 2.0 }}
[limits]
max_episodes = {in_flight}
[envs.bench]
world = "tests.benchmarks.client:Bench"
count = {count}
[methods.{method}]
"""

job = given.folder / "job.toml"
text = JOB.format(
    address=given.address,
    in_flight=given.in_flight,
    count=len(given.rows()),
    method="react" if given.steps else "standard",
)
job.write_text(text + ("steps = 8\n" if given.steps else ""), encoding="utf-8")
main(["run", str(job), "--outputs", str(given.folder)], standalone_mode=False)
(file,) = given.folder.glob("*/trajectories.jsonl")
statuses = [b'"status":"error"' in line for line in file.read_bytes().splitlines()]
given.tell(len(statuses), sum(statuses))
