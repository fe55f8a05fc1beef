// Writes what onnxruntime (npm onnxruntime-node 1.30.0) makes of a graph.
//
//     node ort_optimize.mjs MODEL.onnx OPTIMIZED.onnx [LEVEL]
//
// LEVEL: basic, extended (default: with onnxruntime's own fused operators) or all.
import ort from 'onnxruntime-node';

const [model, optimized, level = 'extended'] = process.argv.slice(2);
await ort.InferenceSession.create(model, {
    graphOptimizationLevel: level,
    optimizedModelFilePath: optimized,
    logSeverityLevel: 3,
});
