// What the TypeScript clients share: where to connect, one line of JSON for each step, and what they leave behind.
//
// A client is started as `CLIENT first TARGET` and, after the server was killed and started again, as
// `CLIENT later TARGET LEFT`. TARGET is a URL, or a command as a JSON array; LEFT is what the first run left.
// What `pair` and `find` are, `pair.mjs` says.
// LONGHAUL_CLIENT_GENERATION tells a client that speaks both generations which one to speak.

import assert from "node:assert/strict";

const STEP_MAX_MS = 40_000;

export const UNKNOWN = "lh1.1.bm90aGluZyBvZiB0aGUga2luZCBleGlzdHMgaGVyZQ";
export const { equal, deepEqual, ok, match } = assert;

const [phase, target, given] = process.argv.slice(2);

export const rig = {
    phase,
    generation: process.env.LONGHAUL_CLIENT_GENERATION,
    url: target.startsWith("http") ? new URL(target) : undefined,
    command: target.startsWith("http") ? undefined : JSON.parse(target),
    given: given === undefined ? {} : JSON.parse(given),
    // What every question is answered with; without it, no question is answered.
    answer: { name: "Ada" },

    answered: () => rig.answer ?? new Promise(() => {}),

    // Runs one step by itself; whatever it throws is why it failed.
    async step(name, work) {
        let timer;
        const late = new Promise((_, reject) => {
            timer = setTimeout(() => reject(new Error(`not done after ${STEP_MAX_MS / 1000} s`)), STEP_MAX_MS);
        });
        let why = "";
        try {
            await Promise.race([work(), late]);
        } catch (error) {
            why = reason(error);
        } finally {
            clearTimeout(timer);
        }
        say({ step: name, ok: why === "", why });
    },

    // Waits until it is its turn to go on.
    async turn() {
        say({ ready: true });
        await new Promise((resolve) => process.stdin.once("data", resolve));
    },

    // Says what is left, and keeps the connection open until standard input ends.
    async leave(tasks) {
        say({ left: tasks });
        process.stdin.resume();
        await new Promise((resolve) => process.stdin.once("end", resolve));
    },
};

// Runs a client's two phases; a failure outside every step is a step of its own.
export async function main(phases) {
    try {
        await phases[phase]();
    } catch (error) {
        say({ step: "connect", ok: false, why: reason(error) });
        process.exitCode = 1;
    }
    process.exit();
}

// Waits for a call that the server must refuse with this code.
export async function refused(work, code) {
    let found;
    try {
        await work;
    } catch (error) {
        found = error?.code ?? error?.cause?.code;
        if (found === code) return error;
        throw error;
    }
    throw new Error(`expected the error ${code}, found none`);
}

// Asks again and again until it is as wanted.
export async function until(ask, wanted, pauseMs = 200) {
    for (;;) {
        const found = await ask();
        if (wanted(found)) return found;
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
}

function say(line) {
    process.stdout.write(`${JSON.stringify(line)}\n`);
}

function reason(error) {
    const cause = error?.cause === undefined ? "" : ` <- ${error.cause?.message ?? error.cause}`;
    const place = /[\w-]+\.mjs:\d+/.exec((error?.stack ?? "").split("\n").slice(1).join("\n"))?.[0];
    return `${error?.name}: ${error?.message}${cause}${place === undefined ? "" : ` (${place})`}`.replaceAll("\n", " ");
}
