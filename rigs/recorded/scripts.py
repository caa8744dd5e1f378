"""What `record.py` calls the tools of each server with: a name of a tool, and the arguments of each of its calls.

A tool that is not named here is called once, with no arguments. `once`: not to be called wrongly as well.
"""

EVERYTHING = {
    "echo": [{"message": "é ü 日本語 \u202e \"quoted\" \\ \u0007"}, {}],
    "get-sum": [{"a": 1.5, "b": 2}, {"a": "one", "b": 2}],
    "get-annotated-message": [{"messageType": kind, "includeImage": kind == "success"} for kind in ("error", "success", "debug")],
    "get-structured-content": [{"location": "New York"}, {"location": "Nowhere"}],
    "get-resource-links": [{"count": 3}],
    "get-resource-reference": [{"resourceType": "Text", "resourceId": 1}, {"resourceType": "Blob", "resourceId": 2}],
    "trigger-long-running-operation": [{"duration": 0.3, "steps": 3}],
    "trigger-elicitation-request": [{}],
    "gzip-file-as-resource": [{"name": "x.gz", "data": "data:text/plain,hello", "outputType": "resource"}],
    "simulate-research-query": [{"topic": "tides"}],
    "once": ["echo"],
    "resources": ["demo://resource/dynamic/text/1", "demo://resource/dynamic/blob/2", "demo://resource/dynamic/text/x"],
    "prompts": {
        "args-prompt": [{"city": "Ulm"}, {"city": "Ulm", "state": "BW"}, None],
        "completable-prompt": [{"department": "Engineering", "name": "Alice"}],
        "resource-prompt": [{"resourceType": "Text", "resourceId": "1"}, {"resourceType": "x", "resourceId": "1"}],
    },
    "completions": [
        {"ref": {"type": "ref/prompt", "name": "completable-prompt"}, "argument": {"name": "department", "value": "E"}},
        {"ref": {"type": "ref/prompt", "name": "completable-prompt"}, "argument": {"name": "name", "value": ""},
         "context": {"arguments": {"department": "Engineering"}}},
        {"ref": {"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"}, "argument": {"name": "resourceId", "value": "1"}},
        {"ref": {"type": "ref/prompt", "name": "no_such_prompt"}, "argument": {"name": "a", "value": ""}},
    ],
}

FILES = {
    "read_file": [{"path": "notes/one.txt"}, {"path": "notes/one.txt", "head": 1, "tail": 1}],
    "read_text_file": [{"path": "notes/späte Notiz.md"}, {"path": "/etc/passwd"}, {"path": "notes/one.txt", "tail": 2}],
    "read_media_file": [{"path": "dot.png"}, {"path": "notes/none.png"}],
    "read_multiple_files": [{"paths": ["notes/one.txt", "notes/none.txt"]}],
    "write_file": [{"path": "notes/new.txt", "content": "new\r\n\tline\u2028\u0001"}],
    "edit_file": [{"path": "notes/one.txt", "edits": [{"oldText": "two", "newText": "2"}], "dryRun": True},
                  {"path": "notes/one.txt", "edits": [{"oldText": "none", "newText": "2"}]}],
    "create_directory": [{"path": "notes/more"}],
    "list_directory": [{"path": "notes"}, {"path": ".."}],
    "list_directory_with_sizes": [{"path": "notes", "sortBy": "size"}],
    "directory_tree": [{"path": "notes"}],
    "move_file": [{"source": "notes/new.txt", "destination": "notes/more/new.txt"}],
    "search_files": [{"path": "notes", "pattern": "**/*.txt"}],
    "get_file_info": [{"path": "notes/none"}],
}

MEMORY = {
    "create_entities": [{"entities": [{"name": "Ada", "entityType": "person", "observations": ["née Byron", "1e2"]},
                                      {"name": "__proto__", "entityType": "", "observations": []}]}],
    "create_relations": [{"relations": [{"from": "Ada", "to": "__proto__", "relationType": "knows"}]}],
    "add_observations": [{"observations": [{"entityName": "Ada", "contents": ["wrote"]}]},
                         {"observations": [{"entityName": "Nobody", "contents": ["wrote"]}]}],
    "delete_observations": [{"deletions": [{"entityName": "Ada", "observations": ["1e2"]}]}],
    "search_nodes": [{"query": "byron"}, {"query": ""}],
    "open_nodes": [{"names": ["Ada"]}],
    "delete_relations": [{"relations": [{"from": "Ada", "to": "__proto__", "relationType": "knows"}]}],
    "delete_entities": [{"entityNames": ["__proto__"]}],
}

THOUGHT = {"thought": "First, the tides.", "nextThoughtNeeded": True, "thoughtNumber": 1, "totalThoughts": 2}
THINKING = {"sequentialthinking": [THOUGHT, {**THOUGHT, "thoughtNumber": 2, "isRevision": True, "revisesThought": 1},
                                   {**THOUGHT, "thoughtNumber": 0}, {"thought": 1}]}

HERE = {"repo_path": "repository"}
GIT = {
    "git_status": [HERE, {"repo_path": "/"}],
    "git_add": [{**HERE, "files": ["one.txt"]}],
    "git_diff_unstaged": [HERE],
    "git_diff_staged": [HERE, {**HERE, "context_lines": 0}],
    "git_diff": [{**HERE, "target": "no-such-branch"}],
    "git_create_branch": [{**HERE, "branch_name": "second"}],
    "git_checkout": [{**HERE, "branch_name": "second"}],
    "git_show": [{**HERE, "revision": "HEAD"}],
    "git_log": [{**HERE, "max_count": 2}],
    "git_branch": [{**HERE, "branch_type": "local"}],
    "git_reset": [HERE],
}

TIME = {
    "get_current_time": [{"timezone": "Asia/Kathmandu"}, {"timezone": "Nowhere/None"}],
    "convert_time": [{"source_timezone": "UTC", "time": "16:30", "target_timezone": "Asia/Tokyo"},
                     {"source_timezone": "UTC", "time": "25:00", "target_timezone": "Asia/Tokyo"}],
}

FETCH = {
    "fetch": [{"url": "http://127.0.0.1:9/nothing"}, {"url": "no url"}],
    "prompts": {"fetch": [{"url": "http://127.0.0.1:9/nothing"}, {}]},
}

PAGE = "data:text/html,<title>Form</title><h1>Hello</h1><input id=i aria-label=Name><button onclick=\"document.title='x'\">Go</button>"
PLAYWRIGHT = {
    "browser_resize": [{"width": 160, "height": 120}],
    "browser_navigate": [{"url": PAGE}],
    "browser_snapshot": [{}],
    "browser_take_screenshot": [{"type": "jpeg"}],
    "browser_evaluate": [{"function": "() => [1e21, -0, 'é', null, {}]"}, {"function": "() => { throw new Error('no') }"}],
    "browser_console_messages": [{"level": "info"}],
    "browser_click": [{"element": "Go", "target": "e4"}, {"element": "none", "target": "e99"}],
    "browser_type": [{"element": "Name", "target": "e3", "text": "Ada"}],
    "browser_press_key": [{"key": "Tab"}],
    "browser_wait_for": [{"time": 0.1}],
    "browser_tabs": [{"action": "list"}],
    "browser_network_requests": [{"static": True}],
    "browser_run_code_unsafe": [{}],
    "once": ["browser_close", "browser_resize", "browser_console_messages"],
}

REFERENCE = {
    "greet": [{"name": "Ada"}],
    "slow_compute": [{"seconds": 0.1, "label": "l"}],
    "confirm_delete": [{"filename": "f"}],
    "resources": ["test://static-text", "test://static-binary"],
}

TASKS = {
    "add": [{"a": 1, "b": 2.5}, {"a": "x", "b": 1}],
    "report": [{"steps": 3}],
    "slow": [{"seconds": 0.1}],
    "resources": ["note://one", "note://two/parts"],
    "prompts": {"summary": [{"topic": "tides"}, None]},
}

RAW = '{"content":[{"type":"text","text":"\\u00e9\\/","vendor":1.50}],"vendor":{"b":1e2,"a":[-0,12345678901234567890123]}}'
PLAIN = {
    "echo": [{"a": 12345678901234567890, "z": 1.0, "é": "\u202e"}],
    "params": [{"a": None}],
    "raw": [{"result": RAW}, {"result": '{ "structuredContent" : [1.50] , "content" : [ ] }'}],
    "frame": [{"frame": '{ "result" : {"content":[],"_meta":{"k":1.0}} , "id" : ID, "jsonrpc":"2.0" }'}],
    "late": [{"seconds": 0.01}],
    "progress": [{"steps": 2}],
    "ask": [{"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {
        "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}}],
    "long": [{"bytes": 1000, "first": True}],
    "again": [],
    "flood_frames": [{"count": 3}],
    "flood_stderr": [{"lines": 3}],
    "once": ["echo", "params", "pid"],
    **{hostile: [] for hostile in ("pid", "seen", "hang", "die", "half", "mute", "bad_utf8", "twice", "noise", "flood", "flood_line",
                                   "deaf", "grandchild", "wrong_ids", "reply_to_the_last", "unasked_task", "tell_listeners")},
}

# A server of the newer generation sends no requests; one with sessions asks in no result.
PLAIN_2026 = {**PLAIN, "ask": []}
PLAIN = {**PLAIN, "prompts": None}

RMCP = {
    "test_elicitation": [{"message": "Who?"}],
    "test_sampling": [{"prompt": "hello"}],
    "resources": ["test://static-text", "test://static-binary", "test://template/1/data"],
    "prompts": {
        "test_prompt_with_arguments": [{"arg1": "a", "arg2": "\u00e9"}, None],
        "test_prompt_with_embedded_resource": [{"resourceUri": "test://static-text"}],
    },
    "completions": [{"ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"}, "argument": {"name": "arg1", "value": "t"}}],
}
