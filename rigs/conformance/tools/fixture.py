"""The tools that the official suite calls. Each is one function; the first argument names it."""

import json
import sys
import time

from lh import ask, content, form, log, other, progress, result, text

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="
NAME = {"name": {"type": "string"}}
OK = {"ok": {"type": "boolean"}}
ROOTS = other("roots/list", {})


def sample(words):
    messages = [{"role": "user", "content": {"type": "text", "text": words}}]
    return other("sampling/createMessage", {"messages": messages, "maxTokens": 100})


SAMPLE = sample("What is the capital of France?")


def greet(name):
    result(text(f"Hello, {name}!"))


def slow_compute(seconds, label):
    for step in range(4):
        progress(step + 1, 4, "computing")
        time.sleep(float(seconds) / 4)
    result(text(f"{label}: computed for {seconds} s"))


def failing_job():
    time.sleep(1)
    result(text("this job always fails"), is_error=True)


def protocol_error_job():
    print(json.dumps({"code": -32603, "message": "this job always ends in a protocol error"}))


def confirm_delete(filename):
    answers = ask(confirm=form(f"Delete {filename}?", {"confirm": {"type": "boolean"}}, ["confirm"]))
    done = content(answers["confirm"], "confirm", False)
    result(text(f"{filename} is {'deleted' if done else 'kept'}"))


def multi_input():
    both = {"name": {"type": "string"}, "confirm": {"type": "boolean"}}
    answers = ask(first=form("The first name?", both, []), second=form("The second name?", both, []))
    names = [content(answers[key], "name", "nobody") for key in ("first", "second")]
    result(text(" and ".join(names)))


def test_tool_with_task():
    answers = ask(user_name=form("What is your name?", NAME, ["name"]))
    time.sleep(0.5)
    result(text(f"Hello, {content(answers['user_name'], 'name', 'stranger')}!"))


def test_simple_text():
    result(text("This is a simple text response for testing."))


def test_image_content():
    result({"type": "image", "data": PNG, "mimeType": "image/png"})


def test_audio_content():
    result({"type": "audio", "data": WAV, "mimeType": "audio/wav"})


def test_embedded_resource():
    resource = {"uri": "test://embedded-resource", "mimeType": "text/plain", "text": "This is an embedded resource."}
    result({"type": "resource", "resource": resource})


def test_multiple_content_types():
    resource = {
        "uri": "test://mixed-content-resource",
        "mimeType": "application/json",
        "text": json.dumps({"test": "data", "value": 123}),
    }
    result(
        text("Multiple content types test:"),
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "resource", "resource": resource},
    )


def test_error_handling():
    result(text("This tool intentionally returns an error for testing"), is_error=True)


def test_tool_with_progress():
    for done in (0, 50, 100):
        progress(done, 100, f"{done} of 100")
        time.sleep(0.05)
    result(text("done"))


def test_tool_with_logging():
    log("info", "Tool execution started")
    time.sleep(0.05)
    log("info", "Tool processing data")
    time.sleep(0.05)
    log("info", "Tool execution completed")
    result(text("logged"))


def test_reconnection():
    time.sleep(0.5)
    result(text("still here"))


def test_sampling(prompt):
    answers = ask(sampled=sample(prompt))
    result(text(f"LLM response: {json.dumps(answers['sampled'])}"))


def completed(answer):
    result(text(f"Elicitation completed: action={answer.get('action')}, content={json.dumps(answer.get('content'))}"))


def test_elicitation(message):
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    completed(ask(user=form(message, fields, ["username", "email"]))["user"])


def test_elicitation_sep1034_defaults():
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    completed(ask(user=form("Who are you?", fields, []))["user"])


def test_elicitation_sep1330_enums():
    options = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(["First", "Second", "Third"], 1)]
    names = ["Option One", "Option Two", "Option Three"]
    fields = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    completed(ask(user=form("Which ones?", fields, []))["user"])


def test_missing_capability():
    answers = ask(capital=SAMPLE)
    result(text(json.dumps(answers["capital"])))


def test_custom_header(region):
    result(text(f"region {region}"))


def json_schema_2020_12_tool():
    result(text("listed for its schema"))


def test_input_required_result_elicitation():
    answers = ask(user_name=form("What is your name?", NAME, ["name"]))
    result(text(f"Hello, {content(answers['user_name'], 'name', 'stranger')}!"))


def test_input_required_result_sampling():
    answers = ask(capital_question=SAMPLE)
    result(text(json.dumps(answers["capital_question"])))


def test_input_required_result_list_roots():
    answers = ask(client_roots=ROOTS)
    result(text(json.dumps(answers["client_roots"])))


def test_input_required_result_request_state():
    answers = ask(confirm=form("Please confirm", OK, ["ok"]))
    result(text(f"state-ok {content(answers['confirm'], 'ok', False)}"))


def test_input_required_result_multiple_inputs():
    answers = ask(
        user_name=form("What is your name?", NAME, ["name"]),
        greeting=sample("Generate a greeting"),
        client_roots=ROOTS,
    )
    result(text(json.dumps(answers)))


def test_input_required_result_multi_round():
    first = ask(step1=form("Step 1: What is your name?", NAME, ["name"]))
    second = ask(
        step2=form("Step 2: What is your favorite color?", {"color": {"type": "string"}}, ["color"])
    )
    name = content(first["step1"], "name", "stranger")
    result(text(f"{name} likes {content(second['step2'], 'color', 'nothing')}"))


def test_input_required_result_tampered_state():
    answers = ask(confirm=form("Please confirm", OK, ["ok"]))
    result(text(f"confirmed {content(answers['confirm'], 'ok', False)}"))


def test_input_required_result_capabilities():
    answers = ask(user_name=form("What is your name?", NAME, ["name"]), capital_question=SAMPLE)
    result(text(json.dumps(answers)))


TOOLS = {name: tool for name, tool in globals().items() if callable(tool) and tool.__module__ == "__main__"}

if __name__ == "__main__":
    TOOLS[sys.argv[1]](*sys.argv[2:])
