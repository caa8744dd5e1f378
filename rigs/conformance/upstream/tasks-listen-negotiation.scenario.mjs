// Task ids from a client that did not declare the extension are refused before the stream opens (C-35).

import { EXTENSION, TASKS, check, request } from './wire.mjs';

export default class {
  name = 'tasks-listen-negotiation';
  source = EXTENSION;
  description =
    'subscriptions/listen with taskIds from a request that does not declare the tasks extension is -32021 with HTTP 400.';

  async run({ serverUrl }) {
    const filter = { notifications: { taskIds: ['any'] } };
    const reply = await request(serverUrl, 'subscriptions/listen', filter, { elicitation: {} });
    const errors = [];
    if (reply.status !== 400) errors.push(`HTTP ${reply.status}`);
    if (reply.error?.code !== -32021) errors.push(`code ${reply.error?.code}`);
    if (!reply.error?.data?.requiredCapabilities?.extensions?.[TASKS]) errors.push('requiredCapabilities does not name it');
    return [check('sep-2663-listen-undeclared', 'Undeclared: -32021, HTTP 400, the extension named', errors, { reply })];
  }
}
