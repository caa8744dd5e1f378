// Judges a message against the official schema of 2025-11-25. The validator is the one that the suite brings along.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const SCHEMA = new URL('../../../crates/mcp/tests/schema/mcp-2025-11-25.schema.json', import.meta.url);

let validator;

function open() {
  const suite = process.env.CONFORMANCE_SUITE;
  if (!suite) throw new Error('CONFORMANCE_SUITE must name the folder where the suite is installed');
  const require = createRequire(`${suite}/package.json`);
  const Ajv = require('ajv/dist/2020').default;
  const formats = require('ajv-formats').default;
  const ajv = new Ajv({ strict: false, allErrors: false });
  formats(ajv);
  ajv.addSchema(JSON.parse(readFileSync(SCHEMA, 'utf8')), 'mcp');
  return ajv;
}

/** What is wrong with this value as a message of that type: nothing, or the first problem. */
export function problems(type, value) {
  validator ??= open();
  const judge = validator.getSchema(`mcp#/$defs/${type}`);
  if (!judge) throw new Error(`the schema has no type ${type}`);
  if (judge(value)) return [];
  return judge.errors.slice(0, 1).map((error) => `${error.instancePath || 'it'} ${error.message}`);
}
