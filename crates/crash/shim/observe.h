/* What record.c writes and looks at: the trace, files by inode, the memory, paths and descriptors of a stopped thread. */
#define _GNU_SOURCE
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/falloc.h>
#include <linux/filter.h>
#include <linux/ptrace.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum kind {
    KIND_DIRECTORY = 1,
    KIND_CREATE = 2,
    KIND_WRITE = 3,
    KIND_TRUNCATE = 4,
    KIND_RENAME = 5,
    KIND_LINK = 6,
    KIND_UNLINK = 7,
    KIND_REMOVE_DIRECTORY = 8,
    KIND_SYNC_BEGIN = 9,
    KIND_SYNC_END = 10,
    KIND_MARK = 11,
    KIND_UNSUPPORTED = 12,
    KIND_SETTLED = 13,
};

/* What a stopped thread is in the middle of. */
enum action {
    ACTION_NONE,
    ACTION_OPEN,
    ACTION_WRITE,      /* bytes are in the caller's memory */
    ACTION_COPY,       /* bytes are read back from the file */
    ACTION_TRUNCATE,   /* the length is read back from the file */
    ACTION_RENAME,
    ACTION_LINK,
    ACTION_UNLINK,
    ACTION_DIRECTORY,
    ACTION_REMOVE_DIRECTORY,
    ACTION_SYNC,
};

struct thread {
    pid_t id;
    enum action action;
    struct ptrace_syscall_info call; /* as seen at entry */
    int waiting;                     /* held back until another change is done */
    uint64_t file, offset, length, token, inode;
    int existed;
    char from[PATH_MAX], to[PATH_MAX]; /* absolute and resolved */
};

/* Bytes read back after a thread died in a write whose size is not known; more than any write of a store. */
#define RECORD_BACK_MAX (4 << 20)

static FILE *trace;
static char root[PATH_MAX];
static size_t root_length;
static dev_t root_device, marks_device;
static ino_t marks_inode;
static int has_marks;

static struct thread **threads;
static size_t thread_count, thread_capacity;
static pid_t changing; /* the one thread inside a changing call, or 0 */

static struct { ino_t inode; uint64_t file; } *files;
static size_t file_count, file_capacity;
static uint64_t token_last;

static void fail(const char *what) {
    fprintf(stderr, "could not %s: %s\n", what, strerror(errno));
    exit(125);
}

/* ---- writing the trace ---- */

static void put(const void *bytes, size_t count) {
    if (count != 0 && fwrite(bytes, 1, count, trace) != count) fail("write the trace");
}

static void put_u32(uint32_t value) {
    unsigned char bytes[4];
    for (int i = 0; i < 4; i++) bytes[i] = (unsigned char)(value >> (8 * i));
    put(bytes, 4);
}

static void put_u64(uint64_t value) {
    put_u32((uint32_t)value);
    put_u32((uint32_t)(value >> 32));
}

static void put_head(enum kind kind, size_t length) {
    put_u32((uint32_t)length);
    unsigned char byte = (unsigned char)kind;
    put(&byte, 1);
}

static void put_bytes(const char *bytes, size_t count) {
    put_u32((uint32_t)count);
    put(bytes, count);
}

/* The part of a path below the recorded directory; "" is the directory itself. */
static const char *below(const char *path) {
    if (strncmp(path, root, root_length) != 0) return NULL;
    if (path[root_length] == '\0') return path + root_length;
    return path[root_length] == '/' ? path + root_length + 1 : NULL;
}

static void record_path(enum kind kind, const char *path) {
    const char *name = below(path);
    put_head(kind, 4 + strlen(name));
    put_bytes(name, strlen(name));
}

static void record_paths(enum kind kind, const char *from, const char *to) {
    from = below(from);
    to = below(to);
    put_head(kind, 8 + strlen(from) + strlen(to));
    put_bytes(from, strlen(from));
    put_bytes(to, strlen(to));
}

static void record_create(uint64_t file, const char *path) {
    const char *name = below(path);
    put_head(KIND_CREATE, 12 + strlen(name));
    put_u64(file);
    put_bytes(name, strlen(name));
}

static void record_write(uint64_t file, uint64_t offset, const char *bytes, size_t count) {
    put_head(KIND_WRITE, 20 + count);
    put_u64(file);
    put_u64(offset);
    put_bytes(bytes, count);
}

static void record_truncate(uint64_t file, uint64_t length) {
    put_head(KIND_TRUNCATE, 16);
    put_u64(file);
    put_u64(length);
}

static void record_unsupported(const char *format, ...) {
    char text[PATH_MAX + 100];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put_head(KIND_UNSUPPORTED, 4 + strlen(text));
    put_bytes(text, strlen(text));
}

/* ---- files by inode ---- */

/* The number of the file with this inode, or 0. The newest wins: an inode number is used again after its file is gone. */
static uint64_t file_of(ino_t inode) {
    for (size_t i = file_count; 0 < i; i--)
        if (files[i - 1].inode == inode) return files[i - 1].file;
    return 0;
}

static uint64_t add_file(ino_t inode) {
    if (file_count == file_capacity) {
        file_capacity = file_capacity == 0 ? 256 : 2 * file_capacity;
        files = realloc(files, file_capacity * sizeof *files);
        if (files == NULL) fail("remember a file");
    }
    files[file_count].inode = inode;
    files[file_count].file = file_count + 1;
    return files[file_count++].file;
}

/* ---- the caller's memory, paths and descriptors ---- */

static int read_memory(pid_t id, uint64_t address, void *into, size_t count) {
    struct iovec here = {into, count}, there = {(void *)(uintptr_t)address, count};
    return process_vm_readv(id, &here, 1, &there, 1, 0) == (ssize_t)count ? 0 : -1;
}

static int read_text(pid_t id, uint64_t address, char *into, size_t size) {
    for (size_t at = 0; at < size;) {
        /* Never across a page end: the next page may not be mapped. */
        size_t part = 4096 - (address + at) % 4096;
        if (size - at < part) part = size - at;
        if (read_memory(id, address + at, into + at, part) != 0) return -1;
        if (memchr(into + at, '\0', part) != NULL) return 0;
        at += part;
    }
    return -1;
}

static int descriptor_path(pid_t id, int descriptor, char *into) {
    char link[64];
    if (descriptor == AT_FDCWD)
        snprintf(link, sizeof link, "/proc/%d/cwd", id);
    else
        snprintf(link, sizeof link, "/proc/%d/fd/%d", id, descriptor);
    ssize_t length = readlink(link, into, PATH_MAX - 1);
    if (length < 0) return -1;
    into[length] = '\0';
    return 0;
}

static int descriptor_stat(pid_t id, int descriptor, struct stat *into) {
    char link[64];
    snprintf(link, sizeof link, "/proc/%d/fd/%d", id, descriptor);
    return stat(link, into);
}

/* Resolves a path argument; the last part need not exist and is not followed. Returns 0 if it is below the root. */
static int argument_path(pid_t id, int descriptor, uint64_t address, char *into) {
    char given[PATH_MAX], joined[2 * PATH_MAX + 2], resolved[PATH_MAX];
    if (read_text(id, address, given, sizeof given) != 0) return -1;
    if (given[0] == '/') {
        snprintf(joined, sizeof joined, "%s", given);
    } else {
        char base[PATH_MAX];
        if (descriptor_path(id, descriptor, base) != 0) return -1;
        snprintf(joined, sizeof joined, "%s/%s", base, given);
    }
    size_t length = strlen(joined);
    while (1 < length && joined[length - 1] == '/') joined[--length] = '\0';
    char *slash = strrchr(joined, '/');
    if (slash == NULL) return -1;
    const char *name = slash + 1;
    if (strcmp(name, "..") == 0 || strcmp(name, ".") == 0) {
        if (realpath(joined, into) == NULL) return -1;
        return below(into) != NULL ? 0 : -1;
    }
    char parent[2 * PATH_MAX + 2];
    size_t parent_length = slash == joined ? 1 : (size_t)(slash - joined);
    memcpy(parent, joined, parent_length);
    parent[parent_length] = '\0';
    if (realpath(parent, resolved) == NULL) return -1;
    const char *base = strcmp(resolved, "/") == 0 ? "" : resolved;
    if (PATH_MAX <= snprintf(into, PATH_MAX, "%s/%s", base, name)) return -1;
    return below(into) != NULL ? 0 : -1;
}

/* Where the next write of a descriptor goes; also says how it was opened. */
static uint64_t descriptor_position(pid_t id, int descriptor, uint64_t size, unsigned *flags) {
    char name[64], text[512];
    snprintf(name, sizeof name, "/proc/%d/fdinfo/%d", id, descriptor);
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t count = read(file, text, sizeof text - 1);
    close(file);
    text[count < 0 ? 0 : count] = '\0';
    unsigned long long position = 0;
    *flags = 0;
    char *at = strstr(text, "pos:");
    if (at != NULL) position = strtoull(at + 4, NULL, 10);
    at = strstr(text, "flags:");
    if (at != NULL) *flags = (unsigned)strtoul(at + 6, NULL, 8);
    return (*flags & O_APPEND) != 0 ? size : position;
}

/* Fills in the file a descriptor stands for. Returns 0 if it is a recorded file. */
static int recorded_file(struct thread *thread, int descriptor, struct stat *status) {
    if (descriptor_stat(thread->id, descriptor, status) != 0) return -1;
    if (!S_ISREG(status->st_mode) || status->st_dev != root_device) return -1;
    if (descriptor_path(thread->id, descriptor, thread->from) != 0) return -1;
    /* Checked by path as well, since an inode number may have moved on to a file elsewhere. */
    if (below(thread->from) == NULL) return -1;
    thread->file = file_of(status->st_ino);
    thread->inode = status->st_ino;
    if (thread->file == 0) {
        record_unsupported("a file that was not seen being created: %s", below(thread->from));
        return -1;
    }
    return 0;
}

static int is_marks(pid_t id, int descriptor) {
    struct stat status;
    return has_marks && descriptor_stat(id, descriptor, &status) == 0 && status.st_dev == marks_device &&
           status.st_ino == marks_inode;
}

/* ---- recording what is in a file now ---- */

static int all_zero(const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != 0) return 0;
    return 1;
}

/* Records the bytes that are in the file now; zeroes as well if asked. */
static void record_region(int descriptor, uint64_t file, uint64_t offset, uint64_t count, int zeroes) {
    static char buffer[1 << 16];
    while (0 < count) {
        size_t part = count < sizeof buffer ? (size_t)count : sizeof buffer;
        ssize_t got = pread(descriptor, buffer, part, (off_t)offset);
        if (got <= 0) return;
        if (zeroes || !all_zero(buffer, (size_t)got)) record_write(file, offset, buffer, (size_t)got);
        offset += (uint64_t)got;
        count -= (uint64_t)got;
    }
}

/* What a copy wrote, or what a write left behind whose thread died before it could return. */
static void record_back(struct thread *thread, uint64_t count) {
    int descriptor = open(thread->from, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (descriptor < 0 || fstat(descriptor, &status) != 0 || status.st_ino != thread->inode) {
        if (0 <= descriptor) close(descriptor);
        record_unsupported("a copy into a file that was removed: %s", below(thread->from));
        return;
    }
    if (thread->action == ACTION_TRUNCATE) {
        if ((uint64_t)status.st_size != thread->length) record_truncate(thread->file, (uint64_t)status.st_size);
    } else {
        record_region(descriptor, thread->file, thread->offset, count, 1);
    }
    close(descriptor);
}

/* The directory as it is before the command starts. */
static void record_existing(const char *path) {
    DIR *directory = opendir(path);
    if (directory == NULL) fail("read the recorded directory");
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char child[PATH_MAX];
        struct stat status;
        if ((int)sizeof child <= snprintf(child, sizeof child, "%s/%s", path, entry->d_name)) continue;
        if (lstat(child, &status) != 0) fail("look at a file of the recorded directory");
        if (S_ISDIR(status.st_mode)) {
            record_path(KIND_DIRECTORY, child);
            record_existing(child);
        } else if (S_ISREG(status.st_mode)) {
            uint64_t file = add_file(status.st_ino);
            record_create(file, child);
            record_truncate(file, (uint64_t)status.st_size);
            int descriptor = open(child, O_RDONLY | O_CLOEXEC);
            if (descriptor < 0) fail("read a file of the recorded directory");
            record_region(descriptor, file, 0, (uint64_t)status.st_size, 0);
            close(descriptor);
        } else {
            record_unsupported("neither a file nor a directory: %s", below(child));
        }
    }
    closedir(directory);
}
