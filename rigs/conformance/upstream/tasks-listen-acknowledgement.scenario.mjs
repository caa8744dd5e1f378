// The first frame names the tasks that are followed, and nothing else (B-46, B-48, C-36).

import { EXTENSION, SUBSCRIPTION, begin, call, check, listen } from './wire.mjs';

export default class {
  name = 'tasks-listen-acknowledgement';
  source = EXTENSION;
  description =
    'The first frame of subscriptions/listen with taskIds is the acknowledgement. It names the tasks that the ' +
    'server follows, leaves unknown ids out without an error, and carries the id of the listen request with its JSON type.';

  async run({ serverUrl }) {
    const taskId = await begin(serverUrl, 'slow_compute', { seconds: 60, label: 'listen-ack' });
    const checks = [];
    const filter = { taskIds: [taskId, 'no-such-task'] };
    for (const id of [4711, 'listen-4711']) {
      const { frames } = await listen(serverUrl, filter, { id, enough: (seen) => seen.length >= 1, within: 5_000 });
      checks.push(this.first(frames[0], id, [taskId]));
    }
    const { frames } = await listen(serverUrl, { taskIds: ['no-such-task'] }, {
      id: 4712,
      enough: (seen) => seen.length >= 1,
      within: 5_000,
    });
    checks.push(this.first(frames[0], 4712, []));
    await call(serverUrl, 'tasks/cancel', { taskId });
    return checks;
  }

  first(frame, id, expected) {
    const errors = [];
    if (frame?.method !== 'notifications/subscriptions/acknowledged') {
      errors.push(`the first frame is ${JSON.stringify(frame)}`);
    } else {
      const followed = frame.params.notifications?.taskIds ?? [];
      if (JSON.stringify(followed) !== JSON.stringify(expected)) {
        errors.push(`it follows ${JSON.stringify(followed)}, expected ${JSON.stringify(expected)}`);
      }
      if (frame.params._meta?.[SUBSCRIPTION] !== id) {
        errors.push(`it is tagged ${JSON.stringify(frame.params._meta?.[SUBSCRIPTION])}, expected ${JSON.stringify(id)}`);
      }
    }
    const what = `${expected.length} of the ids known, ${typeof id} id`;
    return check('sep-2663-listen-acknowledgement', `The acknowledgement is first, exact and tagged (${what})`, errors, {
      frame,
    });
  }
}
