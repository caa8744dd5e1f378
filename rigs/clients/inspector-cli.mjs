// The CLI of Inspector 2.12, one connection for each command. It follows a task to its end, and can do no more with it.

import { LAUNCHER, command } from "./inspector.mjs";
import { pairing } from "./pair.mjs";
import { deepEqual, equal, main, match, rig } from "./steps.mjs";

const era = rig.generation === "2026-07-28" ? "modern" : "legacy";
const where = rig.url === undefined ? ["--", ...rig.command] : ["--transport", "http", "--server-url", rig.url.href];
const cli = (...args) => command(LAUNCHER, ["--cli", "--quiet", "--format", "json", "--protocol-era", era, ...args, ...where]);
const call = (tool, args = {}) =>
    cli("--method", "tools/call", "--tool-name", tool, "--tool-args-json", JSON.stringify(args));

async function first() {
    await rig.step("call", async () => {
        const echoed = await call("echo", { words: "hello" });
        equal(echoed.said?.result.content[0].text, "hello");
        equal((await cli("--method", "tools/list", "--strict")).code, 0);
    });
    await rig.step("poll", async () => {
        equal((await call("slow", { seconds: 2 })).said?.result.content[0].text, "worked for 2 s");
    });
    await rig.step("result", async () => {
        deepEqual((await call("shaped")).said?.result.structuredContent, { files: 900, problems: 0 });
        const failed = await call("fails");
        equal(failed.code, 5);
        match(failed.said?.result.content[0].text, /no such crate/);
        match((await call("errs")).error.message, /the index is locked/);
    });
    await rig.leave({});
}

// It follows a task to its end inside of the one call.
const pair = pairing(async () => ({
    async call(tool, args) {
        const { said, error } = await call(tool, args);
        return said?.result?.content[0].text ?? `${error?.message}`;
    },
}));

await main({ first, ...pair });
