// A snapshot, then every change as tasks/get would tell it, then the listen response (B-47 to B-49, C-33, C-34).

import { EXTENSION, SUBSCRIPTION, begin, call, check, listen, statuses } from './wire.mjs';

export default class {
  name = 'tasks-listen-changes';
  source = EXTENSION;
  description =
    'After the acknowledgement comes the state of each followed task, then every change until it ends. Each is what ' +
    'tasks/get would say, tagged with the subscription. When the last task has ended the server sends the listen response.';

  async run({ serverUrl }) {
    const taskId = await begin(serverUrl, 'slow_compute', { seconds: 2, label: 'listen-changes' });
    const { id, frames, ended } = await listen(serverUrl, { taskIds: [taskId] }, { id: 4721 });
    const told = statuses(frames);
    const last = frames.at(-1);
    const final = await call(serverUrl, 'tasks/get', { taskId });
    return [
      check('sep-2663-listen-snapshot', 'The state of the task follows the acknowledgement at once', snapshot(frames, taskId)),
      check('sep-2663-listen-tagged', 'Every notification carries the subscription id', untagged(frames, id)),
      check('sep-2663-listen-terminal', 'The last notification is the finished task, equal to tasks/get', terminal(told, final)),
      check('sep-2663-listen-ends', 'The stream ends with the listen response', graceful(last, id, ended)),
      check('sep-2663-listen-quiet', 'Nothing but acknowledgement, task notifications and the response', strangers(frames)),
      check('sep-2663-listen-finished', 'A task that has ended is told once, and the stream ends', await again(serverUrl, taskId)),
    ];
  }
}

function snapshot(frames, taskId) {
  const second = frames[1];
  const well = second?.method === 'notifications/tasks' && second.params.taskId === taskId;
  return well ? [] : [`the second frame is ${JSON.stringify(second)}`];
}

function untagged(frames, id) {
  const wrong = frames.filter((frame) => frame.method && frame.params?._meta?.[SUBSCRIPTION] !== id);
  return wrong.map((frame) => `untagged: ${JSON.stringify(frame)}`);
}

function terminal(told, final) {
  const { _meta, ...last } = told.at(-1)?.params ?? {};
  const { _meta: ignored, resultType, pollIntervalMs, ...got } = final;
  delete last.pollIntervalMs;
  const errors = [];
  if (last.status !== 'completed') errors.push(`the last status told is ${last.status}`);
  if (sorted(last) !== sorted(got)) errors.push(`told ${sorted(last)}, tasks/get says ${sorted(got)}`);
  return errors;
}

function sorted(value) {
  const order = (part) =>
    part && typeof part === 'object' && !Array.isArray(part)
      ? Object.fromEntries(Object.keys(part).sort().map((key) => [key, order(part[key])]))
      : part;
  return JSON.stringify(order(value));
}

function graceful(last, id, ended) {
  const errors = [];
  if (last?.id !== id || last?.result?.resultType !== 'complete') errors.push(`the last frame is ${JSON.stringify(last)}`);
  if (last?.result?._meta?.[SUBSCRIPTION] !== id) errors.push('the response is not tagged');
  if (!ended) errors.push('the server did not end the stream');
  return errors;
}

function strangers(frames) {
  const known = ['notifications/subscriptions/acknowledged', 'notifications/tasks'];
  const strange = frames.filter((frame) => frame.method && !known.includes(frame.method));
  return strange.map((frame) => `unexpected: ${frame.method}`);
}

async function again(serverUrl, taskId) {
  const { frames, ended } = await listen(serverUrl, { taskIds: [taskId] }, { id: 4722, within: 5_000 });
  const errors = [];
  const followed = frames[0]?.params?.notifications?.taskIds ?? [];
  if (followed.length > 0 && statuses(frames).length !== 1) errors.push(`told ${statuses(frames).length} times`);
  if (!ended) errors.push('the stream stays open');
  return errors;
}
