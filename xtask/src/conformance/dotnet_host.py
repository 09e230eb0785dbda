"""Compiles C# and runs it, in a .NET runtime within this process.

    compile DIRECTORY    makes one program of the files in it
    run ARGUMENT         runs that program and ends as it did

There is no .NET to install: the runtime is that of a program which brings its own, and the SDK and
what it needs lie beside it. The compiler is that of another one.
"""

import json
import shutil
import sys
from pathlib import Path

import pythonnet

HERE = Path(__file__).resolve().parent
RUNTIME = HERE / "node_modules/@azure/mcp-linux-x64/dist"
RUNTIME_VERSION = "9.0.5"
COMPILER = HERE / "node_modules/@autorest/csharp"
INSTALLED = HERE / "dotnet"
CONFIGURATION = INSTALLED / "runtimeconfig.json"
PROGRAM = HERE / "tests.dll"


def install():
    """Makes the runtime look like an installed one; others are not found by the host."""
    for place in ["host/fxr", "shared/Microsoft.NETCore.App"]:
        link = INSTALLED / place / RUNTIME_VERSION
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(RUNTIME)
    # What the program consists of is what the runtime consists of, the SDK included.
    shutil.copy(RUNTIME / "azmcp.deps.json", RUNTIME / "Microsoft.NETCore.App.deps.json")
    framework = {"name": "Microsoft.NETCore.App", "version": RUNTIME_VERSION}
    CONFIGURATION.write_text(json.dumps({"runtimeOptions": {"framework": framework}}))


def load():
    pythonnet.load("coreclr", runtime_config=str(CONFIGURATION), dotnet_root=str(INSTALLED))


# Modules of .NET can be imported once it is loaded.


def compile_program(directory):
    import clr

    for name in ["Microsoft.CodeAnalysis", "Microsoft.CodeAnalysis.CSharp"]:
        clr.AddReference(str(COMPILER / f"{name}.dll"))
    from Microsoft.CodeAnalysis import DiagnosticSeverity, MetadataReference, OutputKind, SyntaxTree
    from Microsoft.CodeAnalysis.CSharp import CSharpCompilation as Compilation
    from Microsoft.CodeAnalysis.CSharp import CSharpCompilationOptions as CompilationOptions
    from Microsoft.CodeAnalysis.CSharp import CSharpSyntaxTree as CSharp
    from Microsoft.CodeAnalysis.Emit import DebugInformationFormat, EmitOptions
    from System import AppContext, Array
    from System.IO import File
    from System.Text import Encoding

    sources = [
        CSharp.ParseText(path.read_text("utf-8"), path=str(path), encoding=Encoding.UTF8)
        for path in sorted(directory.glob("*.cs"))
    ]
    libraries = str(AppContext.GetData("TRUSTED_PLATFORM_ASSEMBLIES")).split(":")
    compilation = Compilation.Create(
        PROGRAM.stem,
        Array[SyntaxTree](sources),
        Array[MetadataReference]([MetadataReference.CreateFromFile(it) for it in libraries if it]),
        CompilationOptions(OutputKind.ConsoleApplication),
    )
    # With it the trace of a failed test names lines.
    options = EmitOptions(debugInformationFormat=DebugInformationFormat.Embedded)
    file = File.Create(str(PROGRAM))
    result = compilation.Emit(file, options=options)
    file.Close()
    # Warnings are about versions of libraries, which fit all the same.
    errors = [it for it in result.Diagnostics if it.Severity == DiagnosticSeverity.Error]
    return "\n".join(it.ToString() for it in errors) or None


def run_program(argument):
    from System import Array, Object, String
    from System.Reflection import Assembly

    arguments = Array[String]([argument])
    return Assembly.LoadFrom(str(PROGRAM)).EntryPoint.Invoke(None, Array[Object]([arguments]))


verb, argument = sys.argv[1:]
if verb == "compile":
    install()
    load()
    sys.exit(compile_program(Path(argument)))
load()
sys.exit(run_program(argument))
