// Words of a command line, quoted for a POSIX shell.

export const quote = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${String(text).replaceAll("'", `'"'"'`)}'`);
