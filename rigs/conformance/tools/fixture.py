"""The tools that the official suite calls. Each is one function; the first argument names it."""

import json
import sys
import time

from lh import ask, content, form, other, progress, result, text

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
    progress(0, 1, "computing")
    time.sleep(float(seconds))
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
