/* Version of the project, as `compress --version` and what it writes have it. */
#ifndef COMPRESS_IR_VERSION_H
#define COMPRESS_IR_VERSION_H

#ifndef COMPRESS_VERSION_TEXT
#define COMPRESS_VERSION_TEXT "0.1.0"
#endif

#endif
