// The program of clients/dotnet/README.md, and what it uses of the program around it.
using System;
using System.Threading;
using System.Threading.Tasks;
using Lockproxy;

static class Readme
{
    class Database // stands for StackExchange.Redis
    {
        public Task<string> StringGetAsync(string key) { return Task.FromResult<string>(null); }
    }

    static Task WorkAsync(CancellationToken stop) { return Task.CompletedTask; }

    static Task<string> BuildAsync(int day, CancellationToken stop)
    {
        return Task.FromResult("report " + day);
    }

    static async Task Run(CancellationToken cancellationToken)
    {
        var db = new Database();
        // the program of README.md
    }

    static void Main() { Run(CancellationToken.None).GetAwaiter().GetResult(); }
}
