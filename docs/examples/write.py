"""Goes on with a text by a language model, through ctypes:

    python3 write.py libcompress.so.0.1 llama.h5 tokenizer.json "the king"
"""
import ctypes
import json
import sys

library, path, tokenizer, prompt = sys.argv[1:]
compress = ctypes.CDLL(library)
compress.compress_messages.restype = ctypes.c_char_p
context, model, text = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_char_p()


def call(function, *arguments):
    if function(context, *arguments) != 0:
        sys.exit(compress.compress_messages(context).decode())


compress.compress_open(ctypes.byref(context), 0)
options = json.dumps({"tokenizer": tokenizer, "max_tokens": 20})
call(compress.compress_load, path.encode(), ctypes.byref(model))
call(compress.compress_generate, model, prompt.encode(), options.encode(), ctypes.byref(text))
print(text.value.decode())
compress.compress_free_text(text)
compress.compress_free_model(model)
compress.compress_close(context)
