"""lm-eval: its client of chat completions on a task of a local file, samples logged."""

import json
import sys

import given

TASK = """
task: local
dataset_path: json
dataset_kwargs: {{data_files: {{test: {tasks}}}}}
output_type: generate_until
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["</s>"], do_sample: false, temperature: 0.0, max_gen_toks: 256}}
filter_list:
  - name: last
    filter:
      - {{function: regex, regex_pattern: "Answer: (\\\\-?[0-9.,]+)"}}
      - {{function: take_first}}
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
metadata: {{version: 1.0}}
"""
MODEL = "model=mock,base_url={}/chat/completions,num_concurrent={},max_retries=1,tokenized_requests=False,timeout=600"

if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    (given.folder / "local.yaml").write_text(TASK.format(tasks=given.tasks))
    sys.argv = [
        *("lm_eval", "run", "--model", "local-chat-completions"),
        *("--model_args", MODEL.format(given.address, given.in_flight)),
        *("--tasks", "local", "--include_path", str(given.folder)),
        *("--apply_chat_template", "--batch_size", "1"),
        *("--output_path", str(given.folder / "logs"), "--log_samples"),
    ]
    cli_evaluate()
    (file,) = given.folder.glob("logs/**/samples_*.jsonl")
    rows = [json.loads(line) for line in file.open()]
    answered = [row for row in rows if row["resps"][0][0]]
    given.tell(len(answered), len(given.rows()) - len(answered))
