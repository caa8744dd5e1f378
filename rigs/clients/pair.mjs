// One client at one server behind Longhaul, in its own way to call, answer and cancel.
//
// `CLIENT pair TARGET SCENARIO` takes the steps that the scenario names and leaves its tasks when it is told to;
// `CLIENT find TARGET LEFT` finds them after Longhaul was killed and started again.
//
// A driver opens a peer: `call(tool, args)` gives the text of a result; where it has tasks, `start(tool, args)` gives a
// task, `status(task)` its state, `ended(task)` its last `{ status, text }` with its questions answered on the way, and
// `cancel(task)` cancels it. `ask(tool, args)` is there where a question is answered in another way, `keep(task)` where
// another process needs more than the task itself, and `close()` where something would outlive this one.

import { existsSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";

import { equal, ok, rig, until } from "./steps.mjs";

const says = (found, { says }) => ok(found.includes(says), `it does not say \`${says}\` but \`${found}\``);

async function ends(peer, task, step) {
    const { status, text } = await peer.ended(task);
    equal(status, step.ends ?? "completed", `it is ${status}: ${text}`);
    says(text, step);
}

// Starts a task, and waits until it is so; work that leaves a mark has begun then.
async function started(peer, step, state) {
    const task = await peer.start(step.tool, step.arguments);
    await until(() => peer.status(task), (status) => status === state);
    if (state === "working") await (step.began === undefined ? pause(1_000) : until(() => existsSync(step.began), Boolean));
    return task;
}

// The steps by name, in their order.
const STEPS = {
    call: async (peer, step) => says(await peer.call(step.tool, step.arguments), step),
    async result(peer, step) {
        if (peer.start === undefined) return STEPS.call(peer, step);
        step.task = await peer.start(step.tool, step.arguments);
        await ends(peer, step.task, step);
    },
    async question(peer, step) {
        rig.answer = step.answer;
        if (peer.ask !== undefined) return says(await peer.ask(step.tool, step.arguments), step);
        await ends(peer, await peer.start(step.tool, step.arguments), step);
    },
    async cancel(peer, step) {
        const task = await started(peer, step, "working");
        await peer.cancel(task);
        await until(() => peer.status(task), (status) => status === "cancelled");
    },
};

export const pairing = (open) => ({
    async pair() {
        const peer = await open();
        const { restart, asked, ...steps } = rig.given;
        for (const [name, work] of Object.entries(STEPS)) {
            if (name in steps) await rig.step(name, () => work(peer, steps[name]));
        }
        const keep = async (task) => (peer.keep === undefined ? task : peer.keep(task));
        const left = {};
        if (steps.result?.task !== undefined) left.finished = { ...steps.result, task: await keep(steps.result.task) };
        await rig.turn();
        // Nobody answers any more, so a question stays open.
        rig.answer = undefined;
        for (const [name, step, state] of [
            ["restart", restart, "working"],
            ["asked", asked, "input_required"],
        ]) {
            if (step === undefined) continue;
            await rig.step(`${name}, left`, async () => {
                const task = await started(peer, step, state);
                left[name] = { ...step, task: await keep(task) };
            });
        }
        await peer.close?.();
        await rig.leave(left);
    },

    async find() {
        const peer = await open();
        const { finished, restart, asked } = rig.given;
        if (finished !== undefined || restart !== undefined) {
            await rig.step("restart", async () => {
                for (const step of [finished, restart]) if (step !== undefined) await ends(peer, step.task, step);
            });
        }
        if (asked !== undefined) {
            rig.answer = asked.answer;
            await rig.step("asked", () => ends(peer, asked.task, asked));
        }
        await peer.close?.();
    },
});
