// Runs one scenario against a server and prints its checks as JSON: `node run.mjs NAME URL`.

const [name, serverUrl] = process.argv.slice(2);
const module = await import(new URL(`./${name}.scenario.mjs`, import.meta.url));
const scenario = new module.default();
let checks;
try {
  checks = await scenario.run({ serverUrl, specVersion: '2026-07-28' });
} catch (error) {
  checks = [
    { id: name, name, description: scenario.description, status: 'FAILURE', errorMessage: `${error.stack ?? error}` },
  ];
}
console.log(JSON.stringify(checks, null, 2));
