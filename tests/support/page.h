/* Tables of the manual that tests make. */
#ifndef COMPRESS_TESTS_SUPPORT_PAGE_H
#define COMPRESS_TESTS_SUPPORT_PAGE_H

#include "ir/text.h"

/* Compares the table called `name` on a page, what stands between the comments
 * "table: NAME" and "end of table", with what it should be; with COMPRESS_REWRITE=1 puts
 * that in its place. Fails the test where they differ. */
void page_check_table(const char *page, const char *name, const Text *table);

#endif
