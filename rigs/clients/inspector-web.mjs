// The web page of Inspector 2.12 in headless Chromium: every step is a click, and what the page says is read.

import { spawn } from "node:child_process";
import { createServer } from "node:net";

import puppeteer from "puppeteer-core";

import { LAUNCHER, environment } from "./inspector.mjs";
import { main, rig, until } from "./steps.mjs";

const modern = rig.generation === "2026-07-28";

async function freePorts(count) {
    const servers = Array.from({ length: count }, () => createServer().listen(0, "127.0.0.1"));
    await Promise.all(servers.map((server) => new Promise((resolve) => server.once("listening", resolve))));
    const ports = servers.map((server) => server.address().port);
    await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
    return ports;
}

async function open() {
    const [port, sandbox, apps] = await freePorts(3);
    const web = spawn(
        process.execPath,
        [LAUNCHER, "--web", "--server-url", rig.url.href, "--transport", "http", "--protocol-era", modern ? "modern" : "legacy"],
        {
            env: {
                ...environment,
                CLIENT_PORT: String(port),
                MCP_SANDBOX_PORT: String(sandbox),
                MCP_APP_ORIGIN_PORT: String(apps),
                DANGEROUSLY_OMIT_AUTH: "true",
                MCP_AUTO_OPEN_ENABLED: "false",
            },
            stdio: "ignore",
        },
    );
    const answers = () => fetch(`http://127.0.0.1:${port}/`).then((answer) => answer.ok, () => false);
    await until(answers, (well) => well);
    const browser = await puppeteer.launch({
        executablePath: "/usr/bin/chromium",
        args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
    });
    const page = await browser.newPage();
    await page.setViewport({ width: 1400, height: 1000 });
    await page.goto(`http://127.0.0.1:${port}/`);
    return {
        page,
        close: async () => {
            await browser.close();
            web.kill();
        },
    };
}

// What the page shows, and the clicks that a person would make.
class Screen {
    constructor(page) {
        this.page = page;
    }

    async says(words) {
        await this.page.waitForFunction((wanted) => document.body.innerText.includes(wanted), { timeout: 20_000 }, words);
    }

    shows(words) {
        return this.page.evaluate((wanted) => document.body.innerText.includes(wanted), words);
    }

    // Clicks the last button of that name: a dialogue lies over what was there before. A tool's title stands before its name.
    async click(name, which = "button") {
        const found = () =>
            this.page.evaluateHandle(
                (selector, wanted) =>
                    [...document.querySelectorAll(selector)].findLast((element) => element.textContent.trim().endsWith(wanted)),
                which,
                name,
            );
        const button = await until(found, (handle) => handle.asElement() !== null);
        await button.asElement().evaluate((element) => element.click());
    }

    // Other clients' tasks may be listed too: the button of the smallest part of the page that has both it and the words.
    async cancel(words) {
        // A card that has just been drawn may be drawn once more.
        const cancelled = () =>
            this.page.evaluate((wanted) => {
                const buttons = [...document.querySelectorAll("button")].filter((found) => found.textContent === "Cancel Task");
                const card = (button) => {
                    let part = button;
                    while (part.parentElement && !/\bID: /.test(part.innerText)) part = part.parentElement;
                    return part;
                };
                const button = buttons.find((found) => card(found).innerText.includes(wanted));
                button?.click();
                return button !== undefined;
            }, words);
        await until(cancelled, Boolean);
    }

    async type(label, words) {
        const found = () =>
            this.page.evaluateHandle((wanted) => {
                const inputs = [...document.querySelectorAll("input, textarea")].filter((input) => input.type.startsWith("text"));
                // A label is the field's name, or the title that some servers make of it.
                const plain = (words) => words.toLowerCase().replaceAll(/[ _]/g, "");
                return inputs.findLast((input) => plain(input.labels?.[0]?.textContent ?? "").startsWith(plain(wanted)));
            }, label);
        const input = await until(found, (handle) => handle.asElement() !== null);
        await input.asElement().evaluate((element) => {
            element.focus();
            element.select();
        });
        await this.page.keyboard.type(words);
    }

    async connect(tool) {
        // A click that comes before the page is ready goes nowhere.
        const flip = async () => {
            await this.page.$eval("input[role=switch]", (element) => element.checked || element.click());
            return this.page.waitForFunction(() => /\bConnected\b/.test(document.body.innerText), { timeout: 4_000 });
        };
        await until(() => flip().catch(() => undefined), Boolean);
        await this.click("Tools", "label");
        await this.says(tool);
        await this.click("Tasks", "label");
    }

    // Runs a tool from its form; a client of 2025-11-25 asks for a task by a switch.
    async run(tool, fields = {}, asTask = tool !== "echo") {
        // A list that has just come may be drawn once more and forget the first click.
        await until(async () => {
            await this.click(tool);
            return this.shows("Execute Tool");
        }, Boolean);
        for (const [label, words] of Object.entries(fields)) await this.type(label, words);
        if (!modern && asTask) await this.asTask();
        await this.click("Execute Tool");
    }

    async asTask() {
        const found = () =>
            this.page.evaluateHandle(() => {
                const inputs = [...document.querySelectorAll("input")];
                return inputs.find((input) => /task/i.test(input.labels?.[0]?.textContent ?? "") && input.type === "checkbox");
            });
        const box = await until(found, (handle) => handle.asElement() !== null);
        if (!(await box.evaluate((input) => input.checked))) await box.evaluate((input) => input.click());
    }
}

async function first() {
    const { page, close } = await open();
    const screen = new Screen(page);
    try {
        await screen.connect("outlives");
        await rig.step("call", async () => {
            await screen.run("echo", { words: "hello from the page" });
            await screen.says("Results");
            await screen.says("hello from the page");
        });
        await rig.step("poll", async () => {
            await screen.run("slow", { seconds: "3" });
            await screen.says("WORKING");
            await screen.says("COMPLETED");
            await screen.says("worked for 3 s");
        });
        await rig.step("result", async () => {
            await screen.run("fails");
            await screen.says("no such crate");
            await screen.run("errs");
            await screen.says("the index is locked");
        });
        await rig.step("question", async () => {
            await screen.run("asks");
            await screen.says("Whom shall I greet?");
            await screen.type("Name", "Ada");
            await screen.click("Submit");
            await screen.says("Hello, Ada!");
        });
        await rig.step("cancel", async () => {
            await screen.run("endless", { by: "the page" });
            await screen.says("waiting for a cancel by the page");
            await screen.cancel("waiting for a cancel by the page");
            await screen.says("CANCELLED");
        });
        if (!modern) {
            const shown = /ID: (lh1[^\s]+)/.exec(await page.evaluate(() => document.body.innerText))?.[1];
            await page.reload();
            await rig.step("new connection", async () => {
                await screen.connect("outlives");
            });
            await rig.step("list", async () => {
                await screen.says(shown);
            });
        }
    } finally {
        await page.screenshot({ path: `${process.env.LONGHAUL_CLIENT_FOLDER}/page.png` });
        await close();
    }
    await rig.leave({});
}

// The page can take the steps up to a question; it keeps nothing for another process.
async function pair() {
    const { page, close } = await open();
    const screen = new Screen(page);
    const { call, result, question } = rig.given;
    const run = (step, asTask) => {
        // What is false is so without a click.
        const typed = Object.entries(step.arguments).filter(([, value]) => value !== false);
        const fields = typed.map(([name, value]) => [name, String(value)]);
        return screen.run(step.tool, Object.fromEntries(fields), asTask);
    };
    try {
        await screen.connect((result ?? call).tool);
        if (call !== undefined) {
            await rig.step("call", async () => {
                await run(call, false);
                await screen.says(call.says);
            });
        }
        if (result !== undefined) {
            await rig.step("result", async () => {
                await run(result, true);
                await screen.says(result.says);
            });
        }
        if (question !== undefined) {
            await rig.step("question", async () => {
                await run(question, true);
                for (const [field, words] of Object.entries(question.answer)) await screen.type(field, words);
                await screen.click("Submit");
                await screen.says(question.says);
            });
        }
    } finally {
        await page.screenshot({ path: `${process.env.LONGHAUL_CLIENT_FOLDER}/page.png` });
        await close();
    }
    await rig.turn();
    await rig.leave({});
}

await main({ first, pair });
