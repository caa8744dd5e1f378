// Playwright, filesystem, git and memory behind one Longhaul, as two users use them at once: `first-use.mjs URL WORK`.
// Prints what each sees, and fails at the first thing that is not as it must be.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";

import { sessions, stateless, text } from "./clients.mjs";

const [url, work] = process.argv.slice(2);
const say = (line) => process.stdout.write(`${line}\n`);

const site = createServer((request, response) => {
    response.setHeader("content-type", "text/html");
    const name = request.url.slice(1);
    response.end(`<title>${name}</title><h1>The page of ${name}</h1>`);
});
await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve));
const page = (name) => `http://127.0.0.1:${site.address().port}/${name}`;

async function call(client, name, args = {}) {
    const result = await client.callTool({ name, arguments: args });
    assert.notEqual(result.isError, true, `${name}: ${text(result)}`);
    return text(result);
}

const ada = await sessions(url, "ada");
const bob = await stateless(url, "bob");

const { tools } = await ada.listTools();
const names = tools.map((tool) => tool.name);
say(`ada (2025-11-25) sees ${names.length} tools; bob (2026-07-28) ${(await bob.listTools()).tools.length}`);
for (const name of ["browser_navigate", "read_text_file", "git_log", "create_entities"]) {
    assert.ok(names.includes(name), `${name} is not among ${names}`);
}

// Two users on Playwright at once.
await Promise.all([
    call(ada, "browser_navigate", { url: page("ada") }),
    call(bob, "browser_navigate", { url: page("bob") }),
]);
const [hers, his] = await Promise.all([
    call(ada, "browser_evaluate", { function: "() => document.title + ' of ' + location.href" }),
    call(bob, "browser_evaluate", { function: "() => document.title + ' of ' + location.href" }),
]);
assert.ok(hers.includes(page("ada")) && !hers.includes(page("bob")), hers);
assert.ok(his.includes(page("bob")) && !his.includes(page("ada")), his);
say(`ada's browser is at ${page("ada")}, bob's at ${page("bob")}`);
const tabs = await call(bob, "browser_tabs", { action: "list" });
assert.ok(!tabs.includes(page("ada")), tabs);

// Files and git.
await call(ada, "write_file", { path: `${work}/note.txt`, content: "from ada" });
assert.equal(await readFile(`${work}/note.txt`, "utf8"), "from ada");
assert.equal(await call(bob, "read_text_file", { path: `${work}/note.txt` }), "from ada");
const log = await call(bob, "git_log", { repo_path: `${work}/repository`, max_count: 1 });
assert.match(log, /the first commit/);
say(`bob reads ada's file, and the log: ${log.split("\n").find((line) => line.includes("Message"))}`);

// The graph of memory is there at the next call, and for the next user.
await call(ada, "create_entities", {
    entities: [{ name: "longhaul", entityType: "program", observations: ["is durable"] }],
});
assert.match(await call(ada, "read_graph"), /is durable/);
assert.match(await call(bob, "search_nodes", { query: "longhaul" }), /is durable/);
say("the graph of memory is there for both");

await ada.close();
await bob.close();
site.close();
say("all is as it must be");
process.exit(0);
