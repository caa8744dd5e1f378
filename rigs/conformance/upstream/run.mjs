// Runs one scenario against a server and prints its checks as JSON: `node run.mjs NAME URL`.
// CONFORMANCE_SUITE names the folder where the suite is installed; only the tasks-2025 scenarios need it.

const [name, serverUrl] = process.argv.slice(2);
const module = await import(new URL(`./${name}.scenario.mjs`, import.meta.url));
const scenario = new module.default();
const specVersion = name.startsWith('tasks-2025-') ? '2025-11-25' : '2026-07-28';
let checks;
try {
  checks = await scenario.run({ serverUrl, specVersion });
} catch (error) {
  checks = [
    { id: name, name, description: scenario.description, status: 'FAILURE', errorMessage: `${error.stack ?? error}` },
  ];
}
console.log(JSON.stringify(checks, null, 2));
process.exit(0);
