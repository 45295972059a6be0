/* Ordinary commands and locks through lockproxy with hiredis (RESP2).
 *
 * build: cc hiredis.c -o hiredis -lhiredis
 * usage: hiredis HOST PORT
 */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <poll.h>

#define KEY "client-test:hiredis:"

static redisContext *c, *other;

static void check(const char *what, int right) {
    if (right) return;
    fprintf(stderr, "FAIL %s (%s%s)\n", what, c->errstr, other->errstr);
    exit(1);
}

static void ok(const char *step) {
    printf("ok %s\n", step);
    fflush(stdout);
}

static redisContext *dial(const char *host, int port) {
    redisContext *ctx = redisConnectWithTimeout(host, port, (struct timeval){120, 0});
    if (ctx == NULL || ctx->err) {
        fprintf(stderr, "FAIL connect: %s\n", ctx ? ctx->errstr : "out of memory");
        exit(1);
    }
    redisSetTimeout(ctx, (struct timeval){120, 0});
    return ctx;
}

/* These three free the reply and return only whether it is the right one. */
static int is_integer(redisReply *r, long long want) {
    int right = r && r->type == REDIS_REPLY_INTEGER && r->integer == want;
    freeReplyObject(r);
    return right;
}

static int is_positive(redisReply *r) {
    int right = r && r->type == REDIS_REPLY_INTEGER && r->integer > 0;
    freeReplyObject(r);
    return right;
}

static int is_nil(redisReply *r) {
    int right = r && r->type == REDIS_REPLY_NIL;
    freeReplyObject(r);
    return right;
}

static int is_text(redisReply *r, int type, const char *want) {
    int right = r && r->type == type && r->len == strlen(want) && memcmp(r->str, want, r->len) == 0;
    freeReplyObject(r);
    return right;
}

#define is_string(r, want) is_text(r, REDIS_REPLY_STRING, want)
#define is_status(r, want) is_text(r, REDIS_REPLY_STATUS, want)

static redisReply *next_reply(redisContext *ctx) {
    void *r = NULL;
    return redisGetReply(ctx, &r) == REDIS_OK ? r : NULL;
}

static long long take_lock(redisContext *ctx, const char *key) {
    redisReply *r = redisCommand(ctx, "LOCK %s 600", key);
    check("LOCK is answered with a token", r && r->type == REDIS_REPLY_INTEGER && r->integer > 0);
    long long token = r->integer;
    freeReplyObject(r);
    return token;
}

static void data(void) {
    static char value[50000]; /* zeros: hiredis is binary-safe with %b */
    freeReplyObject(redisCommand(c, "DEL " KEY "data " KEY "n " KEY "hash"));
    check("GET of a missing key", is_nil(redisCommand(c, "GET " KEY "data")));
    check("SET", is_status(redisCommand(c, "SET " KEY "data %b", value, sizeof value), "OK"));
    redisReply *r = redisCommand(other, "GET " KEY "data");
    check("GET", r && r->len == sizeof value && memcmp(r->str, value, r->len) == 0);
    freeReplyObject(r);
    check("INCR", is_integer(redisCommand(c, "INCR " KEY "n"), 1));
    check("HSET", is_integer(redisCommand(c, "HSET " KEY "hash a 1 b 2"), 2));
    r = redisCommand(c, "HGETALL " KEY "hash");
    check("HGETALL", r && r->type == REDIS_REPLY_ARRAY && r->elements == 4 && strcmp(r->element[3]->str, "2") == 0);
    freeReplyObject(r);
    r = redisCommand(c, "INCR " KEY "hash");
    check("INCR of a hash", r && r->type == REDIS_REPLY_ERROR && strncmp(r->str, "WRONGTYPE ", 10) == 0);
    freeReplyObject(r);
}

static void pipeline(void) {
    freeReplyObject(redisCommand(c, "DEL " KEY "pipe"));
    for (int i = 1; i <= 200; i++) {
        redisAppendCommand(c, "INCR " KEY "pipe");
        redisAppendCommand(c, "ECHO %d", i);
    }
    for (int i = 1; i <= 200; i++) {
        char want[16];
        snprintf(want, sizeof want, "%d", i);
        check("INCR in a pipeline", is_integer(next_reply(c), i));
        check("ECHO in a pipeline", is_string(next_reply(c), want));
    }
}

static void transaction(void) {
    check("MULTI", is_status(redisCommand(c, "MULTI"), "OK"));
    check("SET queued", is_status(redisCommand(c, "SET " KEY "tx 1"), "QUEUED"));
    check("INCR queued", is_status(redisCommand(c, "INCR " KEY "tx"), "QUEUED"));
    redisReply *r = redisCommand(c, "EXEC");
    check("EXEC", r && r->type == REDIS_REPLY_ARRAY && r->elements == 2 && r->element[1]->integer == 2);
    freeReplyObject(r);
    check("WATCH", is_status(redisCommand(c, "WATCH " KEY "tx"), "OK"));
    check("SET by another", is_status(redisCommand(other, "SET " KEY "tx changed"), "OK"));
    check("MULTI", is_status(redisCommand(c, "MULTI"), "OK"));
    check("SET queued", is_status(redisCommand(c, "SET " KEY "tx lost"), "QUEUED"));
    check("EXEC of a changed key", is_nil(redisCommand(c, "EXEC")));
    check("GET after WATCH", is_string(redisCommand(c, "GET " KEY "tx"), "changed"));
}

static int is_message(redisReply *r, const char *kind) {
    int right = r && r->type == REDIS_REPLY_ARRAY && r->elements == 3 && strcmp(r->element[0]->str, kind) == 0;
    freeReplyObject(r);
    return right;
}

static void pubsub(void) {
    check("SUBSCRIBE", is_message(redisCommand(c, "SUBSCRIBE " KEY "channel"), "subscribe"));
    check("PUBLISH", is_integer(redisCommand(other, "PUBLISH " KEY "channel hello"), 1));
    check("message", is_message(next_reply(c), "message"));
    check("UNSUBSCRIBE", is_message(redisCommand(c, "UNSUBSCRIBE " KEY "channel"), "unsubscribe"));
    check("PUBLISH without subscribers", is_integer(redisCommand(other, "PUBLISH " KEY "channel hello"), 0));
}

static void script(void) {
    check("EVAL", is_string(redisCommand(c, "EVAL %s 1 %s", "return KEYS[1]", KEY), KEY));
    redisReply *sha = redisCommand(c, "SCRIPT LOAD %s", "return redis.call('SET', KEYS[1], ARGV[1])");
    check("SCRIPT LOAD", sha && sha->type == REDIS_REPLY_STRING);
    check("EVALSHA", is_status(redisCommand(c, "EVALSHA %s 1 " KEY "script x", sha->str), "OK"));
    freeReplyObject(sha);
    check("GET", is_string(redisCommand(c, "GET " KEY "script"), "x"));
}

static void lock(void) {
    long long token = take_lock(c, KEY "lock");
    check("LOCK from another connection", is_nil(redisCommand(other, "LOCK " KEY "lock 600")));
    check("UNLOCK with a wrong token", is_integer(redisCommand(other, "UNLOCK " KEY "lock %lld", token + 1), 0));
    check("UNLOCK with the token", is_integer(redisCommand(other, "UNLOCK " KEY "lock %lld", token), 1));
    check("the next token is greater", take_lock(c, KEY "lock") > token);
    check("UNLOCK by another connection", is_integer(redisCommand(other, "UNLOCK " KEY "lock"), 0));
    check("UNLOCK by this connection", is_integer(redisCommand(c, "UNLOCK " KEY "lock"), 1));
}

static void lock_order(void) {
    redisAppendCommand(c, "LOCK " KEY "order 600");
    redisAppendCommand(c, "SET " KEY "value %s", "written under the lock");
    redisAppendCommand(c, "UNLOCK " KEY "order");
    redisAppendCommand(c, "GET " KEY "value");
    redisReply *r = next_reply(c);
    check("LOCK", r && r->type == REDIS_REPLY_INTEGER && r->integer > 0);
    freeReplyObject(r);
    check("SET", is_status(next_reply(c), "OK"));
    check("UNLOCK", is_integer(next_reply(c), 1));
    check("GET", is_string(next_reply(c), "written under the lock"));
}

static void lock_wait(void) {
    long long token = take_lock(c, KEY "wait");
    int sent = 0;
    redisAppendCommand(other, "LOCK " KEY "wait 600 WAIT 60");
    while (!sent) check("send LOCK WAIT", redisBufferWrite(other, &sent) == REDIS_OK);
    check("the waiter waits", poll(&(struct pollfd){.fd = other->fd, .events = POLLIN}, 1, 200) == 0);
    redisAppendCommand(c, "SET " KEY "value x");
    redisAppendCommand(c, "UNLOCK " KEY "wait");
    check("SET", is_status(next_reply(c), "OK"));
    check("UNLOCK", is_integer(next_reply(c), 1));
    redisReply *r = next_reply(other);
    check("the waiter's token is greater", r && r->type == REDIS_REPLY_INTEGER && r->integer > token);
    freeReplyObject(r);
    check("what the waiter sees", is_string(redisCommand(other, "GET " KEY "value"), "x"));
    check("UNLOCK by the waiter", is_integer(redisCommand(other, "UNLOCK " KEY "wait"), 1));
}

static void lock_shared(void) {
    redisReply *first = redisCommand(c, "LOCK " KEY "shared 600 SHARED");
    redisReply *second = redisCommand(other, "LOCK " KEY "shared 600 SHARED");
    check("two SHARED", first && second && first->integer > 0 && second->integer > first->integer);
    check("LOCK next to SHARED", is_nil(redisCommand(c, "LOCK " KEY "shared 600")));
    redisReply *h = redisCommand(c, "LOCKINFO " KEY "shared HOLDERS"); /* the latest is the first */
    check("HOLDERS", h && h->type == REDIS_REPLY_ARRAY && h->elements == 2 &&
        h->element[0]->element[1]->integer == second->integer &&
        h->element[1]->element[1]->integer == first->integer);
    printf("holds " KEY "shared %lld %lld\n", first->integer, second->integer);
    freeReplyObject(first), freeReplyObject(second), freeReplyObject(h);

    check("LIMIT 2", is_positive(redisCommand(c, "LOCK " KEY "limit 600 LIMIT 2")));
    check("LIMIT 2, the second", is_positive(redisCommand(other, "LOCK " KEY "limit 600 LIMIT 2")));
    check("LIMIT 2, the third", is_nil(redisCommand(c, "LOCK " KEY "limit 600 LIMIT 2")));
    check("LIMIT 3", is_positive(redisCommand(c, "LOCK " KEY "limit 600 LIMIT 3")));
    check("UNLOCK of all", is_integer(redisCommand(c, "UNLOCK " KEY "limit FORCE"), 1));

    redisReply *all = redisCommand(c, "LOCKALL 600 2 " KEY "{all}1 " KEY "{all}2");
    check("LOCKALL", all && all->type == REDIS_REPLY_INTEGER);
    check("LOCKALL of one that is held", is_nil(redisCommand(other, "LOCKALL 600 1 " KEY "{all}2")));
    check("UNLOCKALL", is_integer(redisCommand(c, "UNLOCKALL %lld 2 " KEY "{all}1 " KEY "{all}2",
        all->integer), 2));
    freeReplyObject(all);

    check("LOCK by anna", is_positive(redisCommand(c, "LOCK " KEY "anna 600 OWNER anna")));
    check("LOCK by ben", is_positive(redisCommand(other, "LOCK " KEY "ben 600 OWNER ben")));
    int sent = 0;
    redisAppendCommand(other, "LOCK " KEY "anna 600 WAIT 60 OWNER ben");
    while (!sent) check("send LOCK WAIT", redisBufferWrite(other, &sent) == REDIS_OK);
    for (size_t waiters = 0; waiters == 0; poll(NULL, 0, 10)) {
        redisReply *w = redisCommand(c, "LOCKINFO " KEY "anna WAITERS");
        check("WAITERS", w && w->type == REDIS_REPLY_ARRAY);
        waiters = w->elements;
        freeReplyObject(w);
    }
    redisReply *refused = redisCommand(c, "LOCK " KEY "ben 600 WAIT 60 OWNER anna");
    check("two owners wait for each other", refused && refused->type == REDIS_REPLY_ERROR);
    printf("refused %s\n", refused->str);
    freeReplyObject(refused);
    check("UNLOCK of what ben waits for", is_integer(redisCommand(c, "UNLOCK " KEY "anna"), 1));
    check("LOCK WAIT by ben", is_positive(next_reply(other)));
    check("UNLOCK by ben", is_integer(redisCommand(other, "UNLOCK " KEY "anna"), 1));
    check("UNLOCK by ben", is_integer(redisCommand(other, "UNLOCK " KEY "ben"), 1));
}

static void lock_lost(const char *host, int port) {
    redisContext *mine = redisConnect(host, port);
    check("LOCK SESSION", mine && is_positive(redisCommand(mine, "LOCK " KEY "lost 600 SESSION")));
    check("UNLOCK FORCE", is_integer(redisCommand(other, "UNLOCK " KEY "lost FORCE"), 1));
    check("the lock's connection ends", poll(&(struct pollfd){.fd = mine->fd, .events = POLLIN}, 1, 120000) == 1);
    void *reply = NULL;
    check("redisGetReply tells", redisGetReply(mine, &reply) == REDIS_ERR && mine->err == REDIS_ERR_EOF);
    redisFree(mine);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: hiredis HOST PORT\n");
        return 2;
    }
    c = dial(argv[1], atoi(argv[2]));
    other = dial(argv[1], atoi(argv[2]));
    data(), ok("data");
    pipeline(), ok("pipeline");
    transaction(), ok("transaction");
    pubsub(), ok("pubsub");
    script(), ok("script");
    check("WAIT", is_integer(redisCommand(c, "WAIT 0 100"), 0)), ok("wait-command");
    lock(), ok("lock");
    redisReply *r = redisCommand(c, "LOCK " KEY "lock -1");
    check("LOCK with a negative timeout", r && r->type == REDIS_REPLY_ERROR && !strcmp(r->str, "ERR timeout is negative: \"-1\" (seconds, greater than 0, at most 86400)"));
    freeReplyObject(r), ok("lock-error");
    lock_order(), ok("lock-order");
    lock_wait(), ok("lock-wait");
    lock_shared(), ok("lock-shared");
    lock_lost(argv[1], atoi(argv[2])), ok("lock-lost");
    redisFree(c);
    redisFree(other);
    return 0;
}
