#!/usr/bin/env node
// Starts the binary of this platform's package, and ends as it does.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const name = `@longhaul/${process.platform}-${process.arch}`;
let binary;
try {
  binary = require.resolve(`${name}/bin/longhaul`);
} catch {
  console.error(
    `longhaul: the package ${name} is not installed; longhaul is there for PLATFORMS.\n` +
      "Where yours is one of these, install again without --omit=optional.",
  );
  process.exit(70);
}

const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });

// A terminal sends ctrl-c to both; what is sent to this process alone is passed on.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => {
    if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
  });
}

child.on("error", (error) => {
  console.error(`longhaul: cannot start ${binary}: ${error.message}`);
  process.exit(70);
});

child.on("exit", (code, signal) => {
  process.exit(signal === null ? code : 128 + constants.signals[signal]);
});
