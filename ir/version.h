/* Version of the project, as in `compress --version` and written files. */
#ifndef COMPRESS_IR_VERSION_H
#define COMPRESS_IR_VERSION_H

#ifndef COMPRESS_VERSION_TEXT
#define COMPRESS_VERSION_TEXT "0.1.0"
#endif

#endif
