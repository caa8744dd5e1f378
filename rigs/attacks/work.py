"""Polls, lists, questions and creates, more of them than anybody needs: D8, D9 and S21."""

import asyncio
import json
import time

import wire
from attack import counted, median, ms, told


# D8


async def fast_polls(attack):
    """One task polled 1,000 times a second, and pages of a long list with forged cursors."""
    task = (await attack.once(wire.call(attack.port, 1, "nap", ms=3_600_000))).result
    hint = task.get("pollIntervalMs", 0)
    statuses, retry = await poll_at(attack, task["taskId"], rate=1000, seconds=5)
    refused = statuses.get(429, 0)
    attack.goal("polls at 1,000 a second: 429", told(statuses), refused > 0)
    attack.goal("it says when to come again", f"Retry-After: {retry}", retry is not None)
    await asyncio.sleep(2)
    after = (await attack.once(wire.on_task(attack.port, 1, "tasks/get", task["taskId"]))).json
    after = after.get("result", {}).get("pollIntervalMs", 0)
    attack.goal("the hint is raised", f"from {hint} ms to {after} ms", after > hint)
    if not attack.peer:
        await long_list(attack)


async def poll_at(attack, task, rate, seconds, connections=8):
    statuses, retry = {}, None
    begun = time.monotonic()

    async def work(first):
        nonlocal retry
        connection = await attack.open()
        for number in range(first, rate * seconds, connections):
            await asyncio.sleep(max(0, begun + number / rate - time.monotonic()))
            if time.monotonic() - begun > 2 * seconds:
                break
            try:
                connection = connection or await attack.open()
                reply = await connection.ask(wire.on_task(attack.port, number, "tasks/get", task))
                status = reply.status
                retry = reply.headers.get("retry-after", retry) if status == 429 else retry
            except (OSError, EOFError, TimeoutError) as error:
                status, connection = type(error).__name__, connection.abort() if connection else None
            statuses[status] = statuses.get(status, 0) + 1
        if connection:
            connection.abort()

    await asyncio.gather(*(work(first) for first in range(connections)))
    return statuses, retry


async def long_list(attack, count=20_000):
    """`tasks/list` over so many tasks."""
    created = await create_often(attack, count)
    connection, session = await attack.session()

    async def page(cursor=None):
        params = {"cursor": cursor} if cursor else {}
        begun = time.monotonic()
        reply = await connection.ask(wire.legacy(attack.port, wire.frame(5, "tasks/list", params), session))
        return reply, time.monotonic() - begun

    times, sizes, cursor = [], [], None
    for _ in range(20):
        reply, seconds = await page(cursor)
        times.append(seconds)
        sizes.append(len(reply.result["tasks"]))
        cursor = reply.result.get("nextCursor")
    attack.goal(
        f"a list of {created:,} tasks: pages of 50 at most", f"{max(sizes)}; {ms(median(times))} each", max(sizes) <= 50
    )
    forged = [cursor[:-1] + ("A" if cursor[-1] != "A" else "B"), cursor[: len(cursor) // 2], "A" * 4000, "0", cursor + "A"]
    codes = [(await page(each))[0].code for each in forged]
    attack.goal("forged cursors: -32602", counted(codes), set(codes) == {-32602})
    connection.abort()


async def create_often(attack, count, connections=32):
    left, created = [count], [0]

    async def work():
        connection = await attack.open()
        while left[0] > 0:
            left[0] -= 1
            reply = await connection.ask(wire.call(attack.port, 1, "nap", ms=3_600_000))
            created[0] += reply.code is None
        connection.abort()

    await asyncio.gather(*(work() for _ in range(connections)))
    return created[0]


# D9


async def many_questions(attack):
    """A tool that asks 10,000 questions, one that asks with a form of 1 MB, and one with patterns that explode."""
    most, task = 0, await begin(attack, "many")
    begun = time.monotonic()
    while time.monotonic() - begun < 8:
        most = max(most, len((await look(attack, task)).get("inputRequests", {})))
        await asyncio.sleep(0.6)
    attack.goal("10,000 questions: 16 open at most", str(most), 0 < most <= 16)
    await attack.once(wire.on_task(attack.port, 1, "tasks/cancel", task))
    for name, text in [("large", "1,000 fields"), ("long", "one description")]:
        task, shown = await begin(attack, name), 0
        begun = time.monotonic()
        while time.monotonic() - begun < 5:
            state = await look(attack, task)
            shown = max(shown, len(json.dumps(state.get("inputRequests", {}))))
            if state["status"] in ("completed", "failed"):
                break
            await asyncio.sleep(0.6)
        attack.goal(f"a form of 1 MB ({text}): 64 KiB shown at most", f"{shown:,} bytes", shown <= 65536)
        status, why = state["status"], state.get("statusMessage", "no reason")
        attack.goal(f"a form of 1 MB ({text}): the tool is told and goes on", f"{status}: {why}", status == "completed")
        await attack.once(wire.on_task(attack.port, 1, "tasks/cancel", task))
    await explosive_patterns(attack)


async def explosive_patterns(attack):
    processor = attack.server.processor()
    task, times, asked = await begin(attack, "pattern"), [], 0
    begun = time.monotonic()
    while time.monotonic() - begun < 8:
        state = await look(attack, task)
        asked = max(asked, len(state.get("inputRequests", {})))
        for key in state.get("inputRequests", {}):
            answer = {key: {"action": "accept", "content": {"word": "a" * 30_000 + "!"}}}
            began = time.monotonic()
            await attack.once(wire.on_task(attack.port, 1, "tasks/update", task, inputResponses=answer))
            times.append(time.monotonic() - began)
        if state["status"] in ("completed", "failed", "cancelled"):
            break
        await asyncio.sleep(0.6)
    used = attack.server.processor() - processor
    worst = max(times, default=0)
    attack.goal(
        "patterns that explode: never asked, or 100 ms an answer at most",
        f"{asked} of 5 asked, {len(times)} answers, the slowest {ms(worst)}; {used:.2f} s of processor in all",
        worst <= 0.1 and used <= 2,
    )


async def begin(attack, what):
    return (await attack.once(wire.call(attack.port, 1, "asks", what=what))).result["taskId"]


async def look(attack, task):
    return (await attack.once(wire.on_task(attack.port, 1, "tasks/get", task))).result


# S21


async def flood_of_creates(attack):
    """Creates at a hundred times the honest client's pace, over 32 connections, for 10 s."""
    rate, seconds, connections = 2000, 10, 32
    statuses = {}
    begun = time.monotonic()

    async def work(first):
        connection = await attack.open()
        for number in range(first, rate * seconds, connections):
            await asyncio.sleep(max(0, begun + number / rate - time.monotonic()))
            if time.monotonic() - begun > seconds:
                break
            try:
                connection = connection or await attack.open()
                status = (await connection.ask(wire.call(attack.port, 1, "nap", ms=3_600_000))).status
            except (OSError, EOFError, TimeoutError) as error:
                status, connection = type(error).__name__, connection.abort() if connection else None
            statuses[status] = statuses.get(status, 0) + 1
        if connection:
            connection.abort()

    await asyncio.gather(*(work(first) for first in range(connections)))
    rate = sum(statuses.values()) / (time.monotonic() - begun)
    answered = all(status in (200, 429, 503) for status in statuses)
    attack.goal("all of the flood is answered", f"{rate:,.0f} creates a second; {told(statuses)}", answered)
