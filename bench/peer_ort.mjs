// Times a forward run in onnxruntime (npm onnxruntime-node).
//
//     node peer_ort.mjs MODEL.onnx BATCH TOKENS THREADS [REPEATS] [BATCHES]
//
// TOKENS is the length of every text, 0 for images. Prints what bench/step.c prints. To be run
// from a folder with node_modules, as build-consumers, which scripts/test-consumers makes.
import { createRequire } from 'node:module';
const ort = createRequire(`${process.cwd()}/`)('onnxruntime-node');

const [model, batch, tokens, threads, repeats = 5, batches = 5] =
    process.argv.slice(2).map((x, i) => (i ? Number(x) : x));
const session = await ort.InferenceSession.create(model, {
    intraOpNumThreads: threads, interOpNumThreads: 1, graphOptimizationLevel: 'all',
});
const feeds = {};
for (const { name, type, shape } of session.inputMetadata) {
    const dims = shape.map((dim, i) => (i === 0 ? batch : typeof dim === 'number' ? dim : tokens));
    const count = dims.reduce((a, b) => a * b, 1);
    const ids = (i) => (name.endsWith('mask') ? 1n : name.endsWith('type_ids') ? 0n : BigInt((i * 7919) % 1000));
    const data = type === 'int64' ? BigInt64Array.from({ length: count }, (_, i) => ids(i))
        : Float32Array.from({ length: count }, (_, i) => ((i % 17) - 8) / 8);
    feeds[name] = new ort.Tensor(type, data, dims);
}
const times = [];
for (let repeat = 0; repeat <= repeats; repeat++) {
    const count = repeat ? batches : 1, start = performance.now();
    for (let i = 0; i < count; i++) await session.run(feeds);
    times.push((performance.now() - start) / count);
}
const sorted = times.slice(1).sort((a, b) => a - b), peak = process.resourceUsage().maxRSS / 1024;
console.log(`median ${sorted[sorted.length >> 1].toFixed(3)} ms, best ${sorted[0].toFixed(3)} ms, peak ${peak.toFixed(0)} MB`);
