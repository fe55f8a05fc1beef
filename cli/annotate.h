/* Annotations: errors and warnings in the form in which a CI service shows them beside
 * the lines of the file that they are about.
 *
 *   - GitHub Actions reads workflow commands from a step's output:
 *     "::error file=recipes/a.yaml,line=7,col=3,title=passes[0]::what is wrong".
 *   - GitLab takes a Code Quality report, a JSON file that the job names as
 *     artifacts:reports:codequality. */
#ifndef COMPRESS_CLI_ANNOTATE_H
#define COMPRESS_CLI_ANNOTATE_H

#include "cli/command.h"

/* Values of --annotate, in the order of Annotate. */
#define ANNOTATE_NAMES "never|auto|github|gitlab"

typedef enum Annotate {
    ANNOTATE_NEVER,
    ANNOTATE_AUTO, /* for the service that the environment says this runs on, if any */
    ANNOTATE_GITHUB,
    ANNOTATE_GITLAB
} Annotate;

/* The name under which GitLab's documents call the report. */
#define ANNOTATE_FILE "gl-code-quality-report.json"

/* Whether the report of --annotate can be written and replaces nothing but an earlier
 * one, or --force is given; before anything is done. Fails with STATUS_IO, and with
 * STATUS_USAGE where another flag names the same file. */
Status annotate_check(const Cli *cli, Diag *diag);

/* Tells what `told` holds: to stderr, or as a report to `file` (NULL: ANNOTATE_FILE),
 * which is an empty list when there is nothing. What has no place in a file of its own is
 * told of `recipe` (may be NULL). Paths are relative to the checkout ($GITHUB_WORKSPACE,
 * $CI_PROJECT_DIR) where they lie in it. Fails with STATUS_IO. */
Status annotate(const Diag *told, Annotate how, const char *file, const char *recipe,
                Diag *diag);

#endif
