/* The least an agent can do: read the prompt, hand in a report. With an argument, first write down when it began. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char report[] =
    "{\"status\":\"continue\",\"summary\":\"Looked at the next file and moved its tests over.\","
    "\"evidence\":[\"make check: 41 passed, 0 failed\"],\"nextSteps\":[\"Move the next file.\"],\"blocker\":\"\"}";

int main(int count, char **arguments) {
    if (count > 1) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        FILE *stamp = fopen(arguments[1], "w");
        if (!stamp) return 1;
        fprintf(stamp, "%lld", (long long)now.tv_sec * 1000000000LL + now.tv_nsec);
        fclose(stamp);
    }
    char buffer[65536];
    while (read(0, buffer, sizeof buffer) > 0) {
    }
    const char *path = getenv("HARNESS_VALUE_FILE");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : 1;
    size_t length = strlen(report);
    return write(file, report, length) == (ssize_t)length ? 0 : 1;
}
