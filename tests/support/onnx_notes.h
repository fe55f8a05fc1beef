/* ONNX files of ours as any other exporter would have written them. */
#ifndef COMPRESS_TESTS_SUPPORT_ONNX_NOTES_H
#define COMPRESS_TESTS_SUPPORT_ONNX_NOTES_H

/* Takes the notes (io/onnx/onnx_notes.h) out of a file, so that its graph is all that it
 * can be read by. */
void forget_notes(const char *path);

#endif
