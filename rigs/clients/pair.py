"""One client at one server behind Longhaul, in its own way to call, answer and cancel.

`CLIENT pair TARGET SCENARIO` takes the steps that the scenario names and leaves its tasks when it is told to;
`CLIENT find TARGET LEFT` finds them after Longhaul was killed and started again.

A driver opens a peer: `call(tool, arguments)` gives the text of a result, `start(tool, arguments)` a task, `status(task)`
its state, `ended(task, tool)` its last state and text with its questions answered on the way, and `cancel(task, tool)`
cancels it. A task is known by its id.
"""

import asyncio
import os

from steps import holds, main, same


def says(found, step):
    holds(step["says"] in (found or ""), f"it does not say `{step['says']}` but `{found}`")


async def ends(peer, step):
    status, text = await peer.ended(step["task"], step["tool"])
    holds(status == step.get("ends", "completed"), f"it is {status}: {text}")
    says(text, step)


async def until(peer, task, state):
    while await peer.status(task) != state:
        await asyncio.sleep(0.2)


async def until_asked(rig, peer, task):
    waits = [asyncio.create_task(until(peer, task, "input_required")), asyncio.create_task(rig.asked.wait())]
    done, open_still = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in open_still:
        wait.cancel()
    for wait in done:
        wait.result()


async def working(peer, step):
    """Starts a task, and waits until it works; work that leaves a mark has begun then."""
    task = await peer.start(step["tool"], step["arguments"])
    await until(peer, task, "working")
    if "began" not in step:
        await asyncio.sleep(1)
    while "began" in step and not os.path.exists(step["began"]):
        await asyncio.sleep(0.1)
    return task


async def call(peer, step):
    says(await peer.call(step["tool"], step["arguments"]), step)


async def result(peer, step):
    step["task"] = await peer.start(step["tool"], step["arguments"])
    await ends(peer, step)


async def cancel(peer, step):
    task = await working(peer, step)
    await peer.cancel(task, step["tool"])
    await until(peer, task, "cancelled")


async def pair(rig, peer):
    steps = rig.given
    if "question" in steps:
        rig.answer = steps["question"]["answer"]
    # A question is part of what happens before a result.
    for name, work in {"call": call, "result": result, "question": result, "cancel": cancel}.items():
        if name in steps:
            await rig.step(name, lambda: work(peer, steps[name]))
    await rig.turn()
    # Nobody answers any more, so a question stays open.
    rig.answer = None
    left = {"finished": steps["result"]} if "task" in steps.get("result", {}) else {}

    async def leave_working():
        left["restart"] = {**steps["restart"], "task": await working(peer, steps["restart"])}

    async def leave_asking():
        task = await peer.start(steps["asked"]["tool"], steps["asked"]["arguments"])
        await until_asked(rig, peer, task)
        left["asked"] = {**steps["asked"], "task": task}

    for name, work in {"restart": leave_working, "asked": leave_asking}.items():
        if name in steps:
            await rig.step(f"{name}, left", work)
    await rig.leave(**left)


async def find(rig, peer):
    left = rig.given

    async def restart():
        for name in ("finished", "restart"):
            if name in left:
                await ends(peer, left[name])

    async def asked():
        rig.answer = left["asked"]["answer"]
        await ends(peer, left["asked"])

    if "finished" in left or "restart" in left:
        await rig.step("restart", restart)
    if "asked" in left:
        await rig.step("asked", asked)


def drive(connect, **phases):
    """Runs a client: its own phases, and with a peer that `connect(rig)` opens those of a pairing."""

    async def run(rig):
        if rig.phase in phases:
            return await phases[rig.phase](rig)
        async with connect(rig) as peer:
            await (pair if rig.phase == "pair" else find)(rig, peer)

    main(run)
