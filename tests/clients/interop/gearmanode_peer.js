// npm's `gearmanode` as a worker of the interop tests; `peers.rs` describes the lines it speaks.
//
// Usage: gearmanode_peer.js HOST PORT worker
'use strict';

// Only lines of ours may appear on standard output.
require('../../../target/clients/node/node_modules/winston').level = 'error';
const gearmanode = require('../../../target/clients/node/node_modules/gearmanode');
gearmanode.Worker.logger.transports.console.level = 'error';

const [host, port] = process.argv.slice(2);
const worker = gearmanode.worker({ host, port: Number(port) });

worker.addFunction('echo', (job) => job.workComplete(job.payload));
worker.addFunction('note', (job) => {
  process.stdout.write(`worker note ${job.payload.toString('hex')}\n`);
  job.workComplete(job.payload);
});
