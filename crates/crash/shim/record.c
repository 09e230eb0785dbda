/* Runs a command and records what it does to the files below one directory.
 *
 *   MILLSTREAM_RECORD_DIR=dir MILLSTREAM_RECORD_TRACE=file [MILLSTREAM_RECORD_MARKS=file] record command argument...
 *
 * Why ptrace and not LD_PRELOAD: parts of the Rust ecosystem (rustix, and through it tempfile) make system calls
 * without libc, so a preloaded library would not see, for example, the rename that publishes a new manifest. A seccomp filter
 * picks the calls that matter, all others run at full speed.
 *
 * Order. Calls that change something are let through one at a time, so the trace is a total order. fsync is not held back:
 * it is recorded when it begins and when it ends, because it only promises what was written before it began. Writes to the marks
 * file become marks when they begin: by then the caller has decided to say what the mark says.
 *
 * Trace: "MSTRACE1", then records of u32 payload length, u8 kind, payload; all integers little endian. src/trace.rs decodes it.
 */
#include "observe.h"

/* ---- one call: entry ---- */

static void begin_open(struct thread *thread, int descriptor, uint64_t path, uint64_t flags) {
    if (argument_path(thread->id, descriptor, path, thread->from) != 0) return;
    if ((flags & O_TMPFILE) == O_TMPFILE) record_unsupported("a file without a name in %s", below(thread->from));
    if ((flags & O_DSYNC) != 0) record_unsupported("O_SYNC or O_DSYNC on %s", below(thread->from));
    if ((flags & (O_CREAT | O_TRUNC)) == 0) return;
    struct stat status;
    thread->existed = lstat(thread->from, &status) == 0;
    if (thread->existed && S_ISLNK(status.st_mode)) {
        record_unsupported("a symbolic link: %s", below(thread->from));
        return;
    }
    thread->length = (flags & O_TRUNC) != 0; /* whether to cut */
    thread->action = ACTION_OPEN;
}

static void record_mark(struct thread *thread, const struct iovec *parts, size_t count) {
    size_t total = 0;
    for (size_t i = 0; i < count; i++) total += parts[i].iov_len;
    char *bytes = malloc(total + 1);
    if (bytes == NULL) fail("read a mark");
    for (size_t at = 0, i = 0; i < count; at += parts[i++].iov_len)
        if (read_memory(thread->id, (uint64_t)(uintptr_t)parts[i].iov_base, bytes + at, parts[i].iov_len) != 0) {
            /* The process is dying, and this call will not be made. */
            free(bytes);
            return;
        }
    put_head(KIND_MARK, 4 + total);
    put_bytes(bytes, total);
    free(bytes);
}

/* Reads the parts of a vectored write; the caller frees them. */
static struct iovec *read_parts(pid_t id, uint64_t address, uint64_t count) {
    if (IOV_MAX < count) return NULL;
    struct iovec *parts = calloc(count + 1, sizeof *parts);
    if (parts == NULL) fail("read the parts of a write");
    if (count != 0 && read_memory(id, address, parts, count * sizeof *parts) != 0) {
        free(parts);
        return NULL;
    }
    return parts;
}

static void begin_write(struct thread *thread, int vectored, int positioned) {
    const __u64 *arguments = thread->call.seccomp.args;
    int descriptor = (int)arguments[0];
    struct stat status;
    if (recorded_file(thread, descriptor, &status) != 0) {
        if (!is_marks(thread->id, descriptor)) return;
        struct iovec single = {(void *)(uintptr_t)arguments[1], (size_t)arguments[2]};
        if (!vectored) {
            record_mark(thread, &single, 1);
            return;
        }
        struct iovec *parts = read_parts(thread->id, arguments[1], arguments[2]);
        if (parts != NULL) record_mark(thread, parts, (size_t)arguments[2]);
        free(parts);
        return;
    }
    unsigned flags;
    thread->offset = descriptor_position(thread->id, descriptor, (uint64_t)status.st_size, &flags);
    /* Linux appends even with pwrite, if the descriptor was opened so. */
    if (positioned && (flags & O_APPEND) == 0) thread->offset = arguments[3];
    thread->length = (uint64_t)status.st_size;
    thread->action = ACTION_WRITE;
}

static void begin_copy(struct thread *thread, int descriptor, uint64_t offset_address) {
    struct stat status;
    unsigned flags;
    if (recorded_file(thread, descriptor, &status) != 0) return;
    thread->offset = descriptor_position(thread->id, descriptor, (uint64_t)status.st_size, &flags);
    if (offset_address != 0 && read_memory(thread->id, offset_address, &thread->offset, 8) != 0) return;
    thread->action = ACTION_COPY;
}

static void begin_allocate(struct thread *thread) {
    struct stat status;
    uint64_t mode = thread->call.seccomp.args[1];
    if (recorded_file(thread, (int)thread->call.seccomp.args[0], &status) != 0) return;
    if (mode == FALLOC_FL_KEEP_SIZE) return;
    if (mode != 0) record_unsupported("fallocate with mode %llu", (unsigned long long)mode);
    thread->length = (uint64_t)status.st_size;
    thread->action = ACTION_TRUNCATE;
}

static void begin_truncate(struct thread *thread) {
    struct stat status;
    if (recorded_file(thread, (int)thread->call.seccomp.args[0], &status) != 0) return;
    thread->length = (uint64_t)status.st_size;
    thread->action = ACTION_TRUNCATE;
}

static void begin_truncate_path(struct thread *thread) {
    struct stat status;
    if (argument_path(thread->id, AT_FDCWD, thread->call.seccomp.args[0], thread->from) != 0) return;
    if (lstat(thread->from, &status) != 0 || !S_ISREG(status.st_mode)) return;
    thread->file = file_of(status.st_ino);
    thread->inode = status.st_ino;
    thread->length = (uint64_t)status.st_size;
    thread->action = ACTION_TRUNCATE;
}

/* Another thread may end the process while this one is stopped before its call. Then its memory is
 * gone, and the call will not be made. */
static int is_dying(pid_t id, uint64_t address) {
    char byte;
    return read_memory(id, address, &byte, 1) != 0;
}

static void begin_two(struct thread *thread, enum action action, int from_at, uint64_t from, int to_at, uint64_t to,
                      uint64_t flags) {
    int from_inside = argument_path(thread->id, from_at, from, thread->from) == 0;
    int to_inside = argument_path(thread->id, to_at, to, thread->to) == 0;
    if (!from_inside && !to_inside) return;
    if (!from_inside || !to_inside) {
        if (is_dying(thread->id, from) || is_dying(thread->id, to)) return;
        record_unsupported("a file moved into or out of the recorded directory: %s", from_inside ? thread->from : thread->to);
        return;
    }
    struct stat status, target;
    if (lstat(thread->from, &status) != 0) return;
    if (action == ACTION_RENAME && (flags & RENAME_EXCHANGE) != 0) record_unsupported("an exchange of two names");
    /* Two names of one file: rename does nothing and reports success. */
    thread->existed = lstat(thread->to, &target) == 0;
    if (thread->existed && target.st_ino == status.st_ino) return;
    thread->inode = status.st_ino;
    thread->action = action;
}

static void begin_one(struct thread *thread, enum action action, int at, uint64_t path) {
    if (argument_path(thread->id, at, path, thread->from) != 0) return;
    struct stat status;
    thread->existed = lstat(thread->from, &status) == 0;
    thread->action = action;
}

static void begin_sync(struct thread *thread) {
    struct stat status;
    int descriptor = (int)thread->call.seccomp.args[0];
    if (descriptor_stat(thread->id, descriptor, &status) != 0) return;
    if (S_ISDIR(status.st_mode)) {
        if (descriptor_path(thread->id, descriptor, thread->from) != 0 || below(thread->from) == NULL) return;
        thread->file = 0;
    } else if (recorded_file(thread, descriptor, &status) != 0) {
        return;
    }
    const char *name = thread->file == 0 ? below(thread->from) : "";
    thread->token = ++token_last;
    put_head(KIND_SYNC_BEGIN, 20 + strlen(name));
    put_u64(thread->token);
    put_u64(thread->file);
    put_bytes(name, strlen(name));
    thread->action = ACTION_SYNC;
}

static void begin_map(struct thread *thread) {
    const __u64 *arguments = thread->call.seccomp.args;
    struct stat status;
    if ((arguments[2] & PROT_WRITE) == 0 || (arguments[3] & MAP_ANONYMOUS) != 0) return;
    if (recorded_file(thread, (int)arguments[4], &status) == 0)
        record_unsupported("a writable mapping of %s", below(thread->from));
}

static void begin(struct thread *thread) {
    const __u64 *a = thread->call.seccomp.args;
    switch (thread->call.seccomp.nr) {
#ifdef SYS_open
    case SYS_open: begin_open(thread, AT_FDCWD, a[0], a[1]); break;
    case SYS_creat: begin_open(thread, AT_FDCWD, a[0], O_CREAT | O_WRONLY | O_TRUNC); break;
    case SYS_rename: begin_two(thread, ACTION_RENAME, AT_FDCWD, a[0], AT_FDCWD, a[1], 0); break;
    case SYS_link: begin_two(thread, ACTION_LINK, AT_FDCWD, a[0], AT_FDCWD, a[1], 0); break;
    case SYS_unlink: begin_one(thread, ACTION_UNLINK, AT_FDCWD, a[0]); break;
    case SYS_mkdir: begin_one(thread, ACTION_DIRECTORY, AT_FDCWD, a[0]); break;
    case SYS_rmdir: begin_one(thread, ACTION_REMOVE_DIRECTORY, AT_FDCWD, a[0]); break;
    case SYS_symlink:
        if (argument_path(thread->id, AT_FDCWD, a[1], thread->to) == 0) record_unsupported("a symbolic link");
        break;
#endif
#ifdef SYS_renameat
    case SYS_renameat: begin_two(thread, ACTION_RENAME, (int)a[0], a[1], (int)a[2], a[3], 0); break;
#endif
    case SYS_openat: begin_open(thread, (int)a[0], a[1], a[2]); break;
    case SYS_openat2: {
        uint64_t flags = 0;
        if (read_memory(thread->id, a[2], &flags, 8) == 0) begin_open(thread, (int)a[0], a[1], flags);
        break;
    }
    case SYS_write: begin_write(thread, 0, 0); break;
    case SYS_pwrite64: begin_write(thread, 0, 1); break;
    case SYS_writev: begin_write(thread, 1, 0); break;
    case SYS_pwritev: begin_write(thread, 1, 1); break;
    case SYS_pwritev2:
        if (a[5] != 0) record_unsupported("pwritev2 with flags %llu", (unsigned long long)a[5]);
        begin_write(thread, 1, a[3] != UINT64_MAX);
        break;
    case SYS_copy_file_range: begin_copy(thread, (int)a[2], a[3]); break;
    case SYS_sendfile: begin_copy(thread, (int)a[0], 0); break;
    case SYS_splice: begin_copy(thread, (int)a[2], a[3]); break;
    case SYS_ftruncate: begin_truncate(thread); break;
    case SYS_truncate: begin_truncate_path(thread); break;
    case SYS_fallocate: begin_allocate(thread); break;
    case SYS_renameat2: begin_two(thread, ACTION_RENAME, (int)a[0], a[1], (int)a[2], a[3], a[4]); break;
    case SYS_linkat: begin_two(thread, ACTION_LINK, (int)a[0], a[1], (int)a[2], a[3], 0); break;
    case SYS_symlinkat:
        if (argument_path(thread->id, (int)a[1], a[2], thread->to) == 0) record_unsupported("a symbolic link");
        break;
    case SYS_unlinkat:
        begin_one(thread, (a[2] & AT_REMOVEDIR) != 0 ? ACTION_REMOVE_DIRECTORY : ACTION_UNLINK, (int)a[0], a[1]);
        break;
    case SYS_mkdirat: begin_one(thread, ACTION_DIRECTORY, (int)a[0], a[1]); break;
    case SYS_fsync:
    case SYS_fdatasync: begin_sync(thread); break;
    case SYS_mmap: begin_map(thread); break;
    case SYS_io_uring_setup: record_unsupported("io_uring"); break;
    default: break;
    }
}

/* ---- one call: exit ---- */

static void end_open(struct thread *thread) {
    struct stat status;
    if (stat(thread->from, &status) != 0 || !S_ISREG(status.st_mode)) return;
    if (!thread->existed) {
        record_create(add_file(status.st_ino), thread->from);
    } else if (thread->length) {
        record_truncate(file_of(status.st_ino), 0);
    }
}

static void end_write(struct thread *thread, uint64_t count) {
    const __u64 *arguments = thread->call.seccomp.args;
    uint64_t number = thread->call.seccomp.nr;
    char *bytes = malloc(count + 1);
    if (bytes == NULL) fail("copy a write");
    int bad = 0;
    if (number == SYS_write || number == SYS_pwrite64) {
        bad = read_memory(thread->id, arguments[1], bytes, count);
    } else {
        struct iovec *parts = read_parts(thread->id, arguments[1], arguments[2]);
        size_t at = 0;
        for (size_t i = 0; parts != NULL && at < count && i < arguments[2]; i++) {
            size_t part = parts[i].iov_len < count - at ? parts[i].iov_len : count - at;
            bad |= read_memory(thread->id, (uint64_t)(uintptr_t)parts[i].iov_base, bytes + at, part);
            at += part;
        }
        bad |= parts == NULL || at != count;
        free(parts);
    }
    /* Another thread may end the process right now, and its memory with it. The file has the bytes:
     * nobody else changes it before this call is over. */
    if (bad) record_back(thread, count);
    else record_write(thread->file, thread->offset, bytes, count);
    free(bytes);
}

static void end(struct thread *thread, int64_t result) {
    switch (thread->action) {
    case ACTION_NONE: break;
    case ACTION_OPEN: end_open(thread); break;
    case ACTION_WRITE:
        if (result != 0) end_write(thread, (uint64_t)result);
        break;
    case ACTION_COPY:
        if (result != 0) record_back(thread, (uint64_t)result);
        break;
    case ACTION_TRUNCATE: record_back(thread, 0); break;
    case ACTION_RENAME: record_paths(KIND_RENAME, thread->from, thread->to); break;
    case ACTION_LINK: record_paths(KIND_LINK, thread->from, thread->to); break;
    case ACTION_UNLINK: record_path(KIND_UNLINK, thread->from); break;
    case ACTION_DIRECTORY: record_path(KIND_DIRECTORY, thread->from); break;
    case ACTION_REMOVE_DIRECTORY: record_path(KIND_REMOVE_DIRECTORY, thread->from); break;
    case ACTION_SYNC:
        put_head(KIND_SYNC_END, 8);
        put_u64(thread->token);
        break;
    }
}

/* The thread died inside the call: whether it took effect shows in the directory. */
static void end_dead(struct thread *thread) {
    struct stat status;
    int there = lstat(thread->from, &status) == 0;
    switch (thread->action) {
    case ACTION_NONE:
    case ACTION_SYNC: break;
    case ACTION_OPEN:
        if (there) end_open(thread);
        break;
    case ACTION_WRITE:
    case ACTION_COPY:
    case ACTION_TRUNCATE:
        if (there && status.st_ino == thread->inode)
            record_back(thread, RECORD_BACK_MAX);
        break;
    case ACTION_RENAME:
    case ACTION_LINK:
        if (lstat(thread->to, &status) == 0 && status.st_ino == thread->inode) end(thread, 0);
        break;
    case ACTION_UNLINK:
    case ACTION_REMOVE_DIRECTORY:
        if (thread->existed && !there) end(thread, 0);
        break;
    case ACTION_DIRECTORY:
        if (!thread->existed && there) end(thread, 0);
        break;
    }
}

/* ---- threads ---- */

static struct thread *find_thread(pid_t id) {
    for (size_t i = 0; i < thread_count; i++)
        if (threads[i]->id == id) return threads[i];
    if (thread_count == thread_capacity) {
        thread_capacity = thread_capacity == 0 ? 64 : 2 * thread_capacity;
        threads = realloc(threads, thread_capacity * sizeof *threads);
        if (threads == NULL) fail("remember a thread");
    }
    struct thread *thread = calloc(1, sizeof *thread);
    if (thread == NULL) fail("remember a thread");
    thread->id = id;
    threads[thread_count++] = thread;
    return thread;
}

static void resume(pid_t id, int request, int signal) {
    /* A thread that was killed meanwhile is gone; its end is reported by wait. */
    if (syscall(SYS_ptrace, request, id, 0, signal) != 0 && errno != ESRCH) fail("resume a thread");
}

/* Lets a stopped thread into its call, or keeps it waiting while another one changes something. */
static void enter(struct thread *thread) {
    uint64_t number = thread->call.seccomp.nr;
    int free_running = number == SYS_fsync || number == SYS_fdatasync || number == SYS_mmap;
    if (!free_running && changing != 0) {
        thread->waiting = 1;
        return;
    }
    thread->waiting = 0;
    thread->action = ACTION_NONE;
    begin(thread);
    if (thread->action == ACTION_NONE) {
        resume(thread->id, PTRACE_CONT, 0);
        return;
    }
    if (thread->action != ACTION_SYNC) changing = thread->id;
    resume(thread->id, PTRACE_SYSCALL, 0);
}

static void release(void) {
    changing = 0;
    for (size_t i = 0; i < thread_count && changing == 0; i++)
        if (threads[i]->waiting) enter(threads[i]);
}

static void leave(struct thread *thread, int64_t result, int failed) {
    if (!failed) end(thread, result);
    thread->action = ACTION_NONE;
    if (changing == thread->id) release();
}

static void forget_thread(pid_t id) {
    for (size_t i = 0; i < thread_count; i++) {
        if (threads[i]->id != id) continue;
        struct thread *thread = threads[i];
        threads[i] = threads[--thread_count];
        end_dead(thread);
        free(thread);
        break;
    }
    if (changing == id) release();
}

static void stopped(pid_t id, int status) {
    struct thread *thread = find_thread(id);
    int signal = WSTOPSIG(status), event = status >> 16;
    struct ptrace_syscall_info call;
    if (event == PTRACE_EVENT_SECCOMP || signal == (SIGTRAP | 0x80)) {
        if (syscall(SYS_ptrace, PTRACE_GET_SYSCALL_INFO, id, sizeof call, &call) <= 0) {
            if (errno == ESRCH) return;
            fail("read a system call");
        }
        if (call.op == PTRACE_SYSCALL_INFO_SECCOMP) {
            thread->call = call;
            enter(thread);
        } else {
            if (call.op == PTRACE_SYSCALL_INFO_EXIT) leave(thread, call.exit.rval, call.exit.is_error);
            resume(id, PTRACE_CONT, 0);
        }
    } else if (event == PTRACE_EVENT_STOP) {
        int group = signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
        resume(id, group ? PTRACE_LISTEN : PTRACE_CONT, 0);
    } else if (event != 0) {
        resume(id, PTRACE_CONT, 0);
    } else {
        resume(id, PTRACE_CONT, signal);
    }
}

/* ---- starting ---- */

#define ARGUMENT_LOW(index) (offsetof(struct seccomp_data, args) + 8 * (index))
#define LOAD(offset) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (offset))
#define TRACE_CALL(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE)
/* Stops only if one of the bits is set in the argument, so that reading calls cost nothing. */
#define TRACE_CALL_IF(number, index, bits)                                                              \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 4), LOAD(ARGUMENT_LOW(index)),                     \
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (bits), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
/* O_TMPFILE without O_DIRECTORY, which reading a directory sets too. */
#define OPEN_BITS (O_CREAT | O_TRUNC | O_DSYNC | (O_TMPFILE & ~O_DIRECTORY))

static void install_filter(void) {
    struct sock_filter filter[] = {
        LOAD(offsetof(struct seccomp_data, nr)),
#ifdef SYS_open
        TRACE_CALL_IF(SYS_open, 1, OPEN_BITS),
        TRACE_CALL(SYS_creat), TRACE_CALL(SYS_rename), TRACE_CALL(SYS_link), TRACE_CALL(SYS_unlink),
        TRACE_CALL(SYS_mkdir), TRACE_CALL(SYS_rmdir), TRACE_CALL(SYS_symlink),
#endif
#ifdef SYS_renameat
        TRACE_CALL(SYS_renameat),
#endif
        TRACE_CALL_IF(SYS_openat, 2, OPEN_BITS),
        TRACE_CALL_IF(SYS_mmap, 3, MAP_SHARED),
        TRACE_CALL(SYS_openat2), TRACE_CALL(SYS_write), TRACE_CALL(SYS_pwrite64), TRACE_CALL(SYS_writev),
        TRACE_CALL(SYS_pwritev), TRACE_CALL(SYS_pwritev2), TRACE_CALL(SYS_copy_file_range), TRACE_CALL(SYS_sendfile),
        TRACE_CALL(SYS_splice), TRACE_CALL(SYS_ftruncate), TRACE_CALL(SYS_truncate), TRACE_CALL(SYS_fallocate),
        TRACE_CALL(SYS_renameat2), TRACE_CALL(SYS_linkat), TRACE_CALL(SYS_symlinkat), TRACE_CALL(SYS_unlinkat),
        TRACE_CALL(SYS_mkdirat), TRACE_CALL(SYS_fsync), TRACE_CALL(SYS_fdatasync), TRACE_CALL(SYS_io_uring_setup),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("give up new privileges");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) fail("install the system call filter");
}

static pid_t start(char **command) {
    int gate[2];
    if (pipe(gate) != 0) fail("create a pipe");
    /* Otherwise a child that fails would write the buffered part of the trace a second time. */
    if (fflush(trace) != 0) fail("write the trace");
    pid_t child = fork();
    if (child < 0) fail("start the command");
    if (child == 0) {
        char byte;
        close(gate[1]);
        if (read(gate[0], &byte, 1) != 1) _exit(125);
        close(gate[0]);
        install_filter();
        execvp(command[0], command);
        fail("start the command");
    }
    close(gate[0]);
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                   PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (syscall(SYS_ptrace, PTRACE_SEIZE, child, 0, options) != 0) fail("trace the command (is ptrace allowed here?)");
    if (write(gate[1], "g", 1) != 1) fail("start the command");
    close(gate[1]);
    return child;
}

static void prepare(void) {
    const char *directory = getenv("MILLSTREAM_RECORD_DIR"), *output = getenv("MILLSTREAM_RECORD_TRACE");
    const char *marks = getenv("MILLSTREAM_RECORD_MARKS");
    struct stat status;
    errno = EINVAL;
    if (directory == NULL || output == NULL) fail("find MILLSTREAM_RECORD_DIR and MILLSTREAM_RECORD_TRACE");
    if (realpath(directory, root) == NULL || stat(root, &status) != 0) fail("find the recorded directory");
    root_length = strlen(root);
    root_device = status.st_dev;
    if (marks != NULL) {
        int file = open(marks, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (file < 0 || fstat(file, &status) != 0) fail("create the marks file");
        close(file);
        marks_device = status.st_dev;
        marks_inode = status.st_ino;
        has_marks = 1;
    }
    trace = fopen(output, "wbe");
    if (trace == NULL) fail("create the trace");
    setvbuf(trace, NULL, _IOFBF, 1 << 20);
    put("MSTRACE1", 8);
    record_existing(root);
    put_head(KIND_SETTLED, 0);
}

int main(int count, char **arguments) {
    if (count < 2) {
        fprintf(stderr, "usage: record command argument...\n");
        return 125;
    }
    prepare();
    pid_t child = start(arguments + 1);
    int result = 125;
    for (;;) {
        int status;
        pid_t id = waitpid(-1, &status, __WALL);
        if (id < 0 && errno == EINTR) continue;
        if (id < 0) break; /* nobody is left */
        if (WIFSTOPPED(status)) {
            stopped(id, status);
            continue;
        }
        forget_thread(id);
        if (id == child) result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (fclose(trace) != 0) fail("write the trace");
    return result;
}
